"""Files, locks, signals and terminals. Nothing here imports TensorFlow."""
