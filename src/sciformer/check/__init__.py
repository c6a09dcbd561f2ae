"""A recipe tried before a long run: keys, files, one step, memory and time."""
