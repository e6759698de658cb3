"""The hooks that a method implements, what they are given, the rules of composition, the registry."""
