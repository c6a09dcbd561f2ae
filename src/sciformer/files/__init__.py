"""Files: atomic writes, optional packages, tables that are written piece by piece."""
