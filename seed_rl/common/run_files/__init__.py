"""The files of a run's logdir. Nothing here imports TensorFlow."""
