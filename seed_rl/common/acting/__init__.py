"""Actors: environments, the loop that steps them, and its program. Nothing imports TensorFlow."""
