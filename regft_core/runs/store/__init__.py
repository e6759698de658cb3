"""Finished runs, checkpoints, locks, pruning, and the storage that hosts share."""
