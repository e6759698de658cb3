"""A finished run as a folder that predicts, and as files for a benchmark."""
