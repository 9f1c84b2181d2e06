"""Moves rows of tensors in types for which GPUs have kernels.

TensorFlow's `GatherV2` and `Select` have none for small integers: on a GPU, each call would bring
all frames to the host and back. Rows are therefore moved in words of four bytes if their size is a
multiple, as for most images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

_WORD = tf.int32


def gather(tensor: tf.Tensor, rows: tf.Tensor, axis: int = 0) -> tf.Tensor:
    """`tf.gather` of whole rows.

    Args:
      tensor: <dtype>[..., rows, ...], `axis` dimensions before the rows.
      rows: <int32>[n].
      axis: of the rows.

    Returns:
      <dtype>[..., n, ...].
    """
    tensor = tf.convert_to_tensor(tensor)
    words = _words(tensor, axis + 1)
    if not words:
        return tf.gather(tensor, rows, axis=axis)
    gathered = tf.gather(_to_words(tensor, axis + 1, words), rows, axis=axis)
    return _from_words(gathered, tensor, axis + 1)


def select(condition: tf.Tensor, chosen: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Whole rows of `chosen` where `condition`, else of `other`.

    Args:
      condition: <bool>[n].
      chosen: <dtype>[n, ...].
      other: <dtype>[n, ...].

    Returns:
      <dtype>[n, ...].
    """
    # The first version of the op copies whole rows for a condition vector; `tf.where` would
    # broadcast the condition over every pixel, which costs ten times as much.
    chosen, other = tf.convert_to_tensor(chosen), tf.convert_to_tensor(other)
    words = _words(other, 1)
    if not words:
        return tf.raw_ops.Select(condition=condition, x=chosen, y=other)
    x, y = _to_words(chosen, 1, words), _to_words(other, 1, words)
    return _from_words(tf.raw_ops.Select(condition=condition, x=x, y=y), other, 1)


def _words(tensor: tf.Tensor, leading: int) -> int:
    """Number of words in a row; 0: it is not converted."""
    dtype, shape = tensor.dtype, tensor.shape[leading:]
    if not dtype.is_integer or dtype.size >= _WORD.size or not shape.is_fully_defined():
        return 0
    words, rest = divmod(math.prod(shape) * dtype.size, _WORD.size)
    return 0 if rest else words


def _to_words(tensor: tf.Tensor, leading: int, words: int) -> tf.Tensor:
    shape = [words, _WORD.size // tensor.dtype.size]
    return tf.bitcast(tf.reshape(tensor, _joined(tensor, leading, shape)), _WORD)


def _from_words(moved: tf.Tensor, like: tf.Tensor, leading: int) -> tf.Tensor:
    # Bytes are reshaped, not words: TensorFlow reshapes int32 on the host.
    in_bytes = tf.bitcast(moved, like.dtype)
    return tf.reshape(in_bytes, _joined(moved, leading, like.shape[leading:]))


def _joined(tensor: tf.Tensor, leading: int, trailing: Sequence[int]) -> tf.Tensor | list[int]:
    """The first `leading` dimensions of a tensor, followed by others."""
    known = tensor.shape[:leading]
    if known.is_fully_defined():
        return [*known, *trailing]
    return tf.concat([tf.shape(tensor)[:leading], trailing], axis=0)
