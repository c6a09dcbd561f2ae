"""Reader of events: numbers and lists in ROOT, HDF5, Parquet and NumPy files."""
