"""Datasets: sources, built-in tasks, training subsamples, encoded text and length-bucketed batches."""
