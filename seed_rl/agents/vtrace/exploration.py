"""Actions that persist while the policy is undecided."""

from __future__ import annotations

import math

import tensorflow as tf

from seed_rl.common.distributions.base import ParametricDistribution


def persist(
    distribution: ParametricDistribution,
    logits: tf.Tensor,
    prev_actions: tf.Tensor,
    first: tf.Tensor,
    mean_steps: float,
) -> tf.Tensor:
    """Samples actions, preferring the previous ones while the policy is undecided.

    Independent samples of an undecided policy jitter; repeated ones go further (the idea of Dabney
    et al. 2020, arXiv 2006.01782). Of n allowed choices, the previous action a is kept with
    probability

        k(a) = (1 - 1 / mean_steps) pi(a) (1 / max pi - 1) n / (n - 1),

    and otherwise one is drawn in proportion to pi(a) (1 - k(a)). While the policy pi stays the
    same, it is the stationary distribution of this Markov chain; given the previous action, the
    probabilities differ from pi. A policy that has decided samples almost independently, so it
    changes its action as soon as it wants another.

    Args:
      distribution: over one of n choices, parametrized by `logits`.
      logits: <float32>[batch, n] of the policy pi; -inf for choices that are not allowed.
      prev_actions: <int>[batch].
      first: <bool>[batch]; where true there is no previous action, and none is kept.
      mean_steps: from 1 to 1e6: for how long an undecided policy keeps an action before it draws
        again; 1 for independent samples.

    Returns:
      <int>[batch].
    """
    allowed = tf.reduce_sum(tf.cast(logits > -math.inf, tf.float32), axis=-1, keepdims=True)
    policy = tf.nn.softmax(logits)
    indecision = tf.math.divide_no_nan(
        1.0 / tf.reduce_max(policy, axis=-1, keepdims=True) - 1.0, allowed - 1.0
    )
    longest = tf.where(first, 0.0, 1.0 - 1.0 / mean_steps)[:, tf.newaxis]
    kept = longest * policy * allowed * indecision
    others = distribution.sample(logits + tf.math.log1p(-kept))
    kept_previous = tf.reduce_sum(kept * distribution.action_features(prev_actions), axis=-1)
    return tf.where(tf.random.uniform(tf.shape(first)) < kept_previous, prev_actions, others)
