"""The contract of tokens: what a field answers about what is a token."""
