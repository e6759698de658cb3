"""Datasets: sources, training subsamples, encoded text and length-bucketed batches."""
