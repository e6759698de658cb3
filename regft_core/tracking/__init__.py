"""The MLflow mirror of what the stages wrote, and the command that shows it."""
