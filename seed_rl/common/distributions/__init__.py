"""Action distributions, without TensorFlow Probability.

`seed_rl.common.parametric_distribution` re-exports them, for programs outside this package.
"""
