"""Readers of files, one for each format: the `data:` sections of recipes."""
