"""Backward linear recurrences over time, which all value targets reduce to."""

from __future__ import annotations

import tensorflow as tf


def check_shapes(expected: tf.TensorShape, why: str, **tensors: tf.Tensor) -> None:
    """Refuses mismatches: a reward of [time, batch, 1], say, would silently broadcast."""
    for name, tensor in tensors.items():
        if not tensor.shape.is_compatible_with(expected):
            raise ValueError(f"{name} must have shape {expected}, {why}, but has {tensor.shape}.")


def backward_linear_scan(decays: tf.Tensor, increments: tf.Tensor) -> tf.Tensor:
    """Solves x[t] = increments[t] + decays[t] * x[t + 1], with x = 0 after the last step.

    If the number of steps is known statically, it is solved by doubling: after k rounds x[t] covers
    2^k steps, so T steps take log2(T) rounds of whole-tensor arithmetic. On every device these few
    operations are faster than a loop's T small ones.

    Args:
      decays: <float32>[time, ...].
      increments: <float32>[time, ...], the same shape as `decays`.

    Returns:
      <float32>[time, ...].
    """
    num_steps = increments.shape[0]
    if num_steps is None:
        return tf.scan(
            lambda x, step: step[1] + step[0] * x,
            (decays, increments),
            initializer=tf.zeros_like(increments[0]),
            reverse=True,
        )
    covered = 1
    while covered < num_steps:
        padding = [[0, covered]] + [[0, 0]] * (increments.shape.rank - 1)
        increments += decays * tf.pad(increments[covered:], padding)
        decays *= tf.pad(decays[covered:], padding)
        covered *= 2
    return increments
