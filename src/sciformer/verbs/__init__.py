"""The verbs of the command line, a file for each group."""
