"""The learners of the original: their functions, flags and tuples."""
