"""Reader of fields in NetCDF files and Zarr stores."""
