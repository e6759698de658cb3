"""What the scores of several seeds can and cannot show: numpy, deterministic given a seed, no files."""
