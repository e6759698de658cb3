"""Predictions, and the scores that they get."""
