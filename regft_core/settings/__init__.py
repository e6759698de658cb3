"""Configuration: the shape of the YAML files, reading with line numbers, validation, grid to cells."""
