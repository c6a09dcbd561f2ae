"""Check of a recipe before a long run: keys, files, one step, memory and time."""
