"""Packs small integers into 32-bit words for the transfer to a TPU.

A TPU accepts the 8- and 16-bit integers of frames slowly or not at all. Learners of this package
use `pack` and `unpack`, which keep every dtype. `tpu_encode` and `tpu_decode` are for existing
programs: they pack only bytes and widen the rest.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_PACKED_TYPES = (tf.uint8, tf.int8, tf.uint16, tf.int16)
_KEPT_DIMENSIONS = 2
_LANES = 128
"""Vector width of a TPU, which moves data in multiples of it."""


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


class TPUEncodedUInt8(PackedIntegers):
    """Bytes as `tpu_encode` packs them."""


def pack(ts: Any) -> Any:
    """Packs the small integers in a nest of tensors; runs on the host.

    Dimensions after the second must be known. Other tensors are not changed.
    """
    return tf.nest.map_structure(lambda t: _pack(tf.convert_to_tensor(t)), ts)


def unpack(ts: Any) -> Any:
    """Undoes `pack` exactly; runs on the TPU."""
    return tf.nest.map_structure(_unpack, ts)


def tpu_encode(ts: Any) -> Any:
    """Converts a nest of tensors to dtypes that a TPU accepts; runs on the host.

    Bytes become a `TPUEncodedUInt8` if the number of elements is known and a multiple of 128,
    <bfloat16> otherwise; <uint16> becomes <int32>. Other tensors are not changed.
    """
    return tf.nest.map_structure(lambda t: _encode(tf.convert_to_tensor(t)), ts)


def tpu_decode(ts: Any, structure: Any = None) -> Any:
    """Restores the values that `tpu_encode` was given; runs on the TPU.

    Packed bytes become <uint8> again. Widened tensors stay widened; their values are exact.

    Args:
      ts: what `tpu_encode` returned.
      structure: nest to return the tensors in; by default that of `ts`.
    """
    decoded = unpack(ts)
    if structure is None:
        return decoded
    return tf.nest.pack_sequence_as(structure, tf.nest.flatten(decoded))


def _encode(tensor: tf.Tensor) -> Any:
    if tensor.dtype == tf.uint16:
        return tf.cast(tensor, tf.int32)
    if tensor.dtype != tf.uint8:
        return tensor
    size = tensor.shape.num_elements()
    if not size or size % _LANES:
        return tf.cast(tensor, tf.bfloat16)
    packed = _pack(tensor)
    return TPUEncodedUInt8(packed.words, packed.tail, packed.dtype)


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
