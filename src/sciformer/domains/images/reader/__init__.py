"""Read images from files: pictures, folders, tables of file names, arrays."""
