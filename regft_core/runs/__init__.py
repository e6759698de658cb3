"""One run: its inputs, its keys, its phases, its evaluation."""
