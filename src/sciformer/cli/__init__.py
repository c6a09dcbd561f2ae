"""Command line: the app, the terminal, and a file for each group of commands."""
