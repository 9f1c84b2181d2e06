"""Packs small integers into 32-bit words for the transfer to a TPU.

A TPU accepts the 8- and 16-bit integers of frames slowly or not at all.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_PACKED_TYPES = (tf.uint8, tf.int8, tf.uint16, tf.int16)
_KEPT_DIMENSIONS = 2


class PackedIntegers(tf.experimental.ExtensionType):
    """A tensor of 8- or 16-bit integers as 32-bit words.

    Attributes:
      words: <uint32>[*first two dimensions, n]: time and batch remain, further dimensions are
        flattened, packed little-endian and padded with zeros.
      tail: shape of the further dimensions.
      dtype: of the integers.
    """

    words: tf.Tensor
    tail: tf.TensorShape
    dtype: tf.DType


def pack(ts: Any) -> Any:
    """Packs the small integers in a nest of tensors; runs on the host.

    Dimensions after the second must be known. Other tensors are not changed.
    """
    return tf.nest.map_structure(lambda t: _pack(tf.convert_to_tensor(t)), ts)


def unpack(ts: Any) -> Any:
    """Undoes `pack` exactly; runs on the TPU."""
    return tf.nest.map_structure(_unpack, ts)


def _pack(tensor: tf.Tensor) -> Any:
    if tensor.dtype not in _PACKED_TYPES:
        return tensor
    tail = tensor.shape[_KEPT_DIMENSIONS:]
    size = tail.num_elements()
    if size is None:
        raise ValueError(f"Shape {tensor.shape}: only the first two dimensions may be unknown.")
    lead = tf.shape(tensor)[:_KEPT_DIMENSIONS]
    per_word = 4 // tensor.dtype.size
    num_words = -(-size // per_word)
    flat = tf.reshape(tensor, tf.concat([lead, [size]], 0))
    padding = [[0, 0]] * (len(tensor.shape) - len(tail)) + [[0, num_words * per_word - size]]
    flat = tf.pad(flat, padding)
    words = tf.bitcast(tf.reshape(flat, tf.concat([lead, [num_words, per_word]], 0)), tf.uint32)
    return PackedIntegers(words, tail, tensor.dtype)


def _unpack(value: Any) -> Any:
    if not isinstance(value, PackedIntegers):
        return value
    bits = 8 * value.dtype.size
    size = value.tail.num_elements()
    lead = tf.shape(value.words)[:-1]
    # Shifts instead of a bitcast: every XLA backend has them.
    shifts = tf.constant(list(range(0, 32, bits)), tf.uint32)
    parts = tf.bitwise.right_shift(value.words[..., tf.newaxis], shifts)
    parts = tf.bitwise.bitwise_and(parts, tf.constant(2**bits - 1, tf.uint32))
    flat = tf.reshape(parts, tf.concat([lead, [-1]], 0))[..., :size]
    # Via int32, from which casts wrap around to negative numbers.
    flat = tf.cast(tf.cast(flat, tf.int32), value.dtype)
    decoded = tf.reshape(flat, tf.concat([lead, tf.constant(value.tail.as_list(), tf.int32)], 0))
    return tf.ensure_shape(decoded, value.words.shape[:-1].concatenate(value.tail))
