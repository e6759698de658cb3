"""Statistics of the scores of several seeds: numpy, deterministic given a seed, no files."""
