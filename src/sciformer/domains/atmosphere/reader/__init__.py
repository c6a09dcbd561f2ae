"""Reader of fields in NetCDF files and Zarr stores: axes, files, climatology, neighbourhoods."""
