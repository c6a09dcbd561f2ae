"""File formats, with a module for each."""
