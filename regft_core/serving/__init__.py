"""Predictions of an exported model on new files."""
