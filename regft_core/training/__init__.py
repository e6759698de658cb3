"""The training step: one loop, its optimisers, schedules, precision and checkpoints."""
