"""Files, locks, signals and terminals (no TensorFlow here)."""
