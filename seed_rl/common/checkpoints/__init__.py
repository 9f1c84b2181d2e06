"""Writing and restoring checkpoints."""
