"""Reader of image files: pictures, folders, tables of file names, arrays."""
