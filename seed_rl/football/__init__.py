"""Google Research Football."""
