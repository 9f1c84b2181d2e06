"""Distributions over discrete choices: one of n, or several at once."""

from __future__ import annotations

import functools
import math

import tensorflow as tf

from seed_rl.common import random_numbers
from seed_rl.common.distributions.base import Distribution, ParametricDistribution


class Categorical(Distribution):
    """One of n choices per batch element, given by unnormalized log probabilities."""

    def __init__(self, logits: tf.Tensor, dtype: tf.DType = tf.int32, start: int = 0):
        """Creates the distributions.

        Args:
          logits: <float32>[..., n].
          dtype: integer type of the actions.
          start: number of the first choice (Gymnasium's `Discrete(n, start=...)`).
        """
        self.logits = logits
        self._dtype = tf.as_dtype(dtype)
        self._start = start

    @functools.cached_property
    def _log_probs(self) -> tf.Tensor:
        return tf.nn.log_softmax(self.logits)

    def sample(self) -> tf.Tensor:
        logits, rank = self.logits, self.logits.shape.rank
        if rank != 2:
            logits = tf.reshape(logits, [-1, logits.shape[-1]])
        choices = random_numbers.categorical(logits, _index_dtype(self._dtype))
        # Where all logits are NaN (because an environment reported NaN, for example), TensorFlow
        # returns n, for which `log_prob` of the whole batch would fail.
        choices = tf.minimum(choices, logits.shape[-1] - 1)
        return self._to_actions(tf.reshape(choices, tf.shape(self.logits)[:-1]))

    def mode(self) -> tf.Tensor:
        return self._to_actions(
            tf.argmax(self.logits, axis=-1, output_type=_index_dtype(self._dtype))
        )

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        choices, logits = _to_choices(actions, self._start), self.logits
        aligned = choices.shape == logits.shape[:-1]
        if not aligned:  # Broadcast, as arithmetic does for continuous actions.
            shape = tf.broadcast_dynamic_shape(tf.shape(choices), tf.shape(logits)[:-1])
            choices = tf.broadcast_to(choices, shape)
            logits = tf.broadcast_to(logits, tf.concat([shape, tf.shape(logits)[-1:]], axis=0))
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(labels=choices, logits=logits)

    def entropy(self) -> tf.Tensor:
        return -self._expectation(self._log_probs)

    def kl_divergence(self, other: Categorical) -> tf.Tensor:
        return self._expectation(self._log_probs - other._log_probs)

    def _expectation(self, values: tf.Tensor) -> tf.Tensor:
        """Mean <float32>[...] over the choices of `values` <float32>[..., n].

        Ignores choices of probability 0 (forbidden by logits of -inf), whose values are infinite or
        NaN. They are masked before the product, whose gradient would be 0 times infinity too.
        """
        probabilities = tf.exp(self._log_probs)
        counted = tf.where(probabilities > 0, values, tf.zeros_like(values))
        return tf.reduce_sum(probabilities * counted, axis=-1)

    def _to_actions(self, choices: tf.Tensor) -> tf.Tensor:
        actions = tf.cast(choices, self._dtype)
        return actions + tf.cast(self._start, self._dtype) if self._start else actions


class MultiCategorical(Categorical):
    """Several independent choices of n each, <dtype>[..., dimensions]."""

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(super().log_prob(actions), axis=-1)

    def entropy(self) -> tf.Tensor:
        return tf.reduce_sum(super().entropy(), axis=-1)

    def kl_divergence(self, other: Categorical) -> tf.Tensor:
        return tf.reduce_sum(super().kl_divergence(other), axis=-1)


def categorical_distribution(
    n_actions: int, dtype: tf.DType, start: int = 0, one_of_several: bool = False
) -> ParametricDistribution:
    """One of `n_actions` choices; the parameters are logits.

    Args:
      n_actions: number of choices.
      dtype: integer type of the actions.
      start: number of the first choice.
      one_of_several: whether a mask may forbid all of these choices, though not all choices of the
        action; they are then equally likely.
    """
    allowed = _or_all if one_of_several else lambda logits: logits
    return ParametricDistribution(
        param_size=n_actions,
        create_dist=lambda params: Categorical(allowed(params), dtype, start),
        action_features=lambda actions: tf.one_hot(_to_choices(actions, start), n_actions),
    )


def multi_categorical_distribution(
    n_dimensions: int, n_actions_per_dim: int, dtype: tf.DType
) -> ParametricDistribution:
    """`n_dimensions` independent choices of `n_actions_per_dim` each; actions [..., dimensions].

    Args:
      n_dimensions: number of simultaneous choices.
      n_actions_per_dim: number of alternatives of each.
      dtype: integer type of the actions.
    """
    size = n_dimensions * n_actions_per_dim

    def split(params: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([tf.shape(params)[:-1], [n_dimensions, n_actions_per_dim]], axis=0)
        logits = tf.reshape(params, shape)
        logits.set_shape(params.shape[:-1].concatenate([n_dimensions, n_actions_per_dim]))
        return _or_all(logits)

    def one_hot(actions: tf.Tensor) -> tf.Tensor:
        features = tf.one_hot(_to_choices(actions, 0), n_actions_per_dim)
        return tf.reshape(features, tf.concat([tf.shape(actions)[:-1], [size]], axis=0))

    return ParametricDistribution(
        param_size=size,
        create_dist=lambda params: MultiCategorical(split(params), dtype),
        event_shape=(n_dimensions,),
        action_features=one_hot,
    )


def _or_all(logits: tf.Tensor) -> tf.Tensor:
    """`logits` <float32>[..., n], 0 where all n are -inf.

    The masks of actors may forbid all alternatives of a choice, and the loss would be NaN.
    """
    nothing = tf.reduce_all(tf.equal(logits, -math.inf), axis=-1, keepdims=True)
    return tf.where(nothing, tf.zeros_like(logits), logits)


def _index_dtype(dtype: tf.DType) -> tf.DType:
    return dtype if dtype in (tf.int32, tf.int64) else tf.int32


def _to_choices(actions: tf.Tensor, start: int) -> tf.Tensor:
    actions = tf.convert_to_tensor(actions)
    choices = tf.cast(actions, _index_dtype(actions.dtype))
    return choices - start if start else choices
