"""Thin entry points, one per DVC stage; all logic is in ``regft_core``."""
