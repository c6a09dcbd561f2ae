"""Series of points in time: tables in Parquet, CSV, ECSV and FITS files, or in memory."""
