"""Files: formats of tables, atomic writes, seals, and optional packages."""
