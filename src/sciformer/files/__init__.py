"""Files: formats of tables, atomic writes, and optional packages."""
