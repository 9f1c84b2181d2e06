"""Actors: environments, the loop that steps them, the program around it (no TensorFlow here)."""
