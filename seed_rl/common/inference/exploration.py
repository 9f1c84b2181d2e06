"""Random actions among greedy ones."""

from __future__ import annotations

import math

import tensorflow as tf


def explore(
    actions: tf.Tensor,
    epsilons: float | tf.Tensor,
    num_actions: int,
    q_values: tf.Tensor | None = None,
) -> tf.Tensor:
    """Replaces actions with random ones.

    Args:
      actions: <int>[batch] in [0, num_actions).
      epsilons: probabilities of a random action, <float32>[batch], or one for all.
      num_actions: number of actions.
      q_values: <float32>[batch, num_actions]; an action whose value is -inf is masked by the
        network and never chosen at random, unless all are. None: no action is masked.
    """
    shape = tf.shape(actions)
    if q_values is None:
        q_values = tf.zeros(tf.concat([shape, [num_actions]], axis=0))
    masked = tf.equal(q_values, -math.inf)
    logits = tf.where(masked & ~tf.reduce_all(masked, -1, keepdims=True), -math.inf, 0.0)
    anything = tf.random.categorical(logits, 1, dtype=tf.int32)[:, 0]
    at_random = tf.random.uniform(shape) < epsilons
    return tf.where(at_random, tf.cast(anything, actions.dtype), actions)
