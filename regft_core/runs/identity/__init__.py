"""What a key is made of: the code that a result depends on, and the files as they are."""
