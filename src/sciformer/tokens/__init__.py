"""The contract of tokens: what a field defines about its tokens."""
