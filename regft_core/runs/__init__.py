"""Runs: the store that keeps and resumes them, the executors, and the fingerprint of the code."""
