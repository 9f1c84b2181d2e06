"""Small operations on nests of tensors with time and batch dimensions."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.common.nest import Nest


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
