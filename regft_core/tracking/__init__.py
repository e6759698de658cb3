"""MLflow runs of what the stages wrote, and the command that shows them."""
