"""What is wrong with a value, in plain words."""
