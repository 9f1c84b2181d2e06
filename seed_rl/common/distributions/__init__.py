"""Action distributions, without TensorFlow Probability.

`seed_rl.common.parametric_distribution` is the module to import from; it re-exports these parts.
"""
