"""The whole grid: its keys, its jobs, its rows, and what is there already."""
