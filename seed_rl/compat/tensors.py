"""Small operations on nests of tensors with time and batch dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.common.nest import Nest


def batch_apply(fn: Callable[..., Nest], inputs: tuple[Nest, ...]) -> Nest:
    """Applies a function without a time dimension to unrolls by folding time into the batch.

    Args:
      fn: takes nests of [time * batch, ...] and returns a nest of the same leading dimension.
      inputs: its arguments, nests of [time, batch, ...].

    Returns:
      Nest of [time, batch, ...].
    """
    leading = tf.nest.flatten(inputs)[0]
    static = leading.shape[:2]
    time, batch = tf.unstack(tf.shape(leading)[:2])

    def fold(tensor: tf.Tensor) -> tf.Tensor:
        folded = tf.reshape(tensor, tf.concat([[time * batch], tf.shape(tensor)[2:]], 0))
        return tf.ensure_shape(folded, [None, *tensor.shape[2:]])

    def unfold(tensor: tf.Tensor) -> tf.Tensor:
        unfolded = tf.reshape(tensor, tf.concat([[time, batch], tf.shape(tensor)[1:]], 0))
        return tf.ensure_shape(unfolded, static.concatenate(tensor.shape[1:]))

    return tf.nest.map_structure(unfold, fn(*tf.nest.map_structure(fold, inputs)))


def make_time_major(x: Nest) -> Nest:
    """Swaps the first two axes: nest of [batch, time, ...] -> [time, batch, ...], or vice versa."""

    def swap(tensor: tf.Tensor) -> tf.Tensor:
        return tf.transpose(tensor, [1, 0, *range(2, len(tensor.shape))])

    return tf.nest.map_structure(swap, x)


def split_structure(structure: Nest, prefix_length: int, axis: int = 0) -> tuple[Nest, Nest]:
    """Splits every tensor in two along an axis, for example for burn-in.

    Args:
      structure: nest of tensors.
      prefix_length: size of the first part along `axis`; 0: it is empty.
      axis: axis to split, the same for every tensor.

    Returns:
      (nest of first parts, nest of the rest).
    """

    def part(tensor: tf.Tensor, share: slice) -> Any:
        return tensor[(slice(None),) * axis + (share,)]

    return (
        tf.nest.map_structure(lambda t: part(t, slice(None, prefix_length)), structure),
        tf.nest.map_structure(lambda t: part(t, slice(prefix_length, None)), structure),
    )
