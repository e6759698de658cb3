"""Configuration: schema, YAML loading with line numbers, validation, grid to cells."""
