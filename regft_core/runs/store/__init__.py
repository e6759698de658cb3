"""Finished runs, checkpoints, locks and pruning."""
