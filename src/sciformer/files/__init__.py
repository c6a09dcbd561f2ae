"""Files: table formats, atomic writes, verified hashes, and optional packages."""
