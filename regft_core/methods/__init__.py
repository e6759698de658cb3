"""Methods: one file each, found by scanning this folder (see ``registry``)."""
