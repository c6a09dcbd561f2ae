"""Reader of time series in Parquet, CSV, ECSV and FITS files, or in memory."""
