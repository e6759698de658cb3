"""YAML files with their lines."""
