"""Action distributions, without TensorFlow Probability.

Import them from `seed_rl.common.parametric_distribution`, which re-exports these modules.
"""
