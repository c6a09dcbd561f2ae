"""Images from files: pictures, folders, tables that name pictures, arrays."""
