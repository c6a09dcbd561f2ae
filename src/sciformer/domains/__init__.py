"""Fields of science, one folder each: the code and recipes of a single field.

Fields are found by listing this folder. No module outside this folder imports from it, so the rest of the library works
without any field.
"""
