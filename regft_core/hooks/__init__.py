"""What a method implements: the hooks, what they are given, the rules of composition, the registry."""
