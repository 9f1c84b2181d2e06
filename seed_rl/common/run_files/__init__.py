"""What a run keeps in its logdir, and how to read it (no TensorFlow here)."""
