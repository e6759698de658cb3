"""Reading and writing: JSON, hashes, files and directories that are complete or absent."""
