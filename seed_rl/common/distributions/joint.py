"""Distributions over mixed actions of independent parts, such as a button and a steering angle."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

from seed_rl.common.distributions.base import Actions, Distribution, ParametricDistribution


class Joint(Distribution):
    """Independent distributions, one per part of the action.

    Actions have the structure of the parts (tuple or dict).
    """

    def __init__(self, parts: Any):
        """Creates the distributions from a nest of `Distribution`."""
        self._structure = parts
        self._parts: list[Distribution] = tf.nest.flatten(parts)

    def sample(self) -> Actions:
        return self._pack([part.sample() for part in self._parts])

    def sample_and_log_prob(self, differentiable: bool = True) -> tuple[Actions, tf.Tensor]:
        pairs = [part.sample_and_log_prob(differentiable) for part in self._parts]
        actions, log_probs = zip(*pairs, strict=True)
        return self._pack(list(actions)), tf.add_n(log_probs)

    def mode(self) -> Actions:
        return self._pack([part.mode() for part in self._parts])

    def log_prob(self, actions: Actions) -> tf.Tensor:
        tf.nest.assert_same_structure(self._structure, actions)
        leaves = tf.nest.flatten(actions)
        return tf.add_n(
            [part.log_prob(leaf) for part, leaf in zip(self._parts, leaves, strict=True)]
        )

    def entropy(self) -> tf.Tensor:
        return tf.add_n([part.entropy() for part in self._parts])

    def kl_divergence(self, other: Joint) -> tf.Tensor:
        pairs = zip(self._parts, other._parts, strict=True)
        return tf.add_n([part.kl_divergence(other_part) for part, other_part in pairs])

    def _pack(self, leaves: list[tf.Tensor]) -> Actions:
        return tf.nest.pack_sequence_as(self._structure, leaves)


class ConcatenatedJoint(Joint):
    """A `Joint` whose actions are one vector <dtype>[..., n], the concatenation of the parts."""

    def __init__(self, parts: Any, event_shapes: list[tuple[int, ...]], dtype: tf.DType):
        """Creates the distributions; `event_shapes` are those of the flattened parts."""
        super().__init__(parts)
        self._event_shapes = event_shapes
        self._dtype = dtype

    def log_prob(self, actions: tf.Tensor) -> tf.Tensor:
        return super().log_prob(super()._pack(split_vector(actions, self._event_shapes)))

    def _pack(self, leaves: list[tf.Tensor]) -> tf.Tensor:
        columns = []
        for leaf, shape in zip(leaves, self._event_shapes, strict=True):
            leaf = tf.cast(leaf, self._dtype)
            columns.append(leaf if shape else leaf[..., tf.newaxis])
        return tf.concat(columns, axis=-1)


def joint_distribution(
    parametric_distributions: Any, dtype_override: tf.DType | None = tf.float32
) -> ParametricDistribution:
    """The family of independent parts; the parameters are the concatenated ones of the parts.

    Args:
      parametric_distributions: list, tuple or dict of `ParametricDistribution`.
      dtype_override: if given, actions are one vector of this type, the concatenation of the parts.
        None: actions are nests like `parametric_distributions`, each part with its own type.
    """
    families: list[ParametricDistribution] = tf.nest.flatten(parametric_distributions)
    sizes = [family.param_size for family in families]
    event_shapes = [family.event_shape for family in families]

    def create(params: tf.Tensor) -> Joint:
        columns = tf.split(params, sizes, axis=-1)
        parts = [family(column) for family, column in zip(families, columns, strict=True)]
        nest = tf.nest.pack_sequence_as(parametric_distributions, parts)
        if dtype_override is None:
            return Joint(nest)
        return ConcatenatedJoint(nest, event_shapes, tf.as_dtype(dtype_override))

    def features(actions: Actions) -> tf.Tensor:
        if dtype_override is None:
            leaves = tf.nest.flatten(actions)
        else:
            leaves = split_vector(actions, event_shapes)
        return tf.concat(
            [family.action_features(leaf) for family, leaf in zip(families, leaves, strict=True)],
            axis=-1,
        )

    width = sum(_width(shape) for shape in event_shapes)
    return ParametricDistribution(
        param_size=sum(sizes),
        create_dist=create,
        event_shape=() if dtype_override is None else (width,),
        action_features=features,
        reparametrizable=all(family.reparametrizable for family in families),
    )


def split_vector(actions: tf.Tensor, event_shapes: list[tuple[int, ...]]) -> list[tf.Tensor]:
    """Splits <dtype>[..., n] into parts; scalar parts (choices) lose the last dimension."""
    columns = tf.split(actions, [_width(shape) for shape in event_shapes], axis=-1)
    return [
        column if shape else tf.squeeze(column, axis=-1)
        for column, shape in zip(columns, event_shapes, strict=True)
    ]


def _width(event_shape: tuple[int, ...]) -> int:
    return math.prod(event_shape)
