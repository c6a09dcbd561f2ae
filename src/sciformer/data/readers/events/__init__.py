"""Events: columns of numbers and of lists, in ROOT, HDF5, Parquet and NumPy files."""
