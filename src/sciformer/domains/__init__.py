"""Fields of science, a folder each: all that belongs to one alone.

Fields are found by listing this folder. Nothing outside of it imports from it: the rest of the library works without
any of them.
"""
