"""Checks of a whole project that no single value shows."""
