"""Contracts of `tpu_encode` and `tpu_decode`."""

import math

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils

PACKABLE, OTHER = (4, 2, 8, 8, 1), (5, 7)
LEFT = [tf.float32, tf.bfloat16, tf.int32, tf.uint32, tf.bool]


def some_of(dtype, shape):
    dtype = tf.as_dtype(dtype)
    limits = np.iinfo(dtype.as_numpy_dtype)
    rng = np.random.default_rng(0)
    return tf.constant(rng.integers(limits.min, limits.max, shape, dtype.name, endpoint=True))


def test_uint8_that_packs_becomes_words():
    frames = some_of("uint8", PACKABLE)
    encoded = utils.tpu_encode(frames)
    assert isinstance(encoded, utils.TPUEncodedUInt8)
    assert [t.dtype for t in tf.nest.flatten(encoded, expand_composites=True)] == [tf.uint32]
    decoded = utils.tpu_decode(encoded)
    assert decoded.dtype == tf.uint8
    np.testing.assert_array_equal(decoded, frames)


@pytest.mark.parametrize("shape", [(257, 1), (), (3,), (0,)], ids=str)
def test_other_uint8_becomes_bfloat16(shape):
    """Guards all 256 values: bfloat16 has just enough bits."""
    count = math.prod(shape)
    values = tf.reshape(tf.cast(tf.range(count) % 256, tf.uint8), shape)
    encoded = utils.tpu_encode(values)
    assert encoded.dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(utils.tpu_decode(encoded), tf.int32), values)


@pytest.mark.parametrize("dtype", LEFT, ids=lambda dtype: dtype.name)
def test_what_a_tpu_takes_is_left(dtype):
    values = tf.cast(tf.reshape(tf.range(256), [4, 64]) % 2, dtype)
    encoded = utils.tpu_encode(values)
    assert encoded.dtype == dtype
    np.testing.assert_array_equal(encoded, values)


def test_both_work_inside_dataset_map():
    nest = {
        "frame": some_of("uint8", PACKABLE),
        "small": (some_of("uint8", OTHER), some_of("uint16", PACKABLE)),
        "reward": tf.constant([0.5, 1.5]),
    }
    encoded = tf.data.Dataset.from_tensors(nest).map(utils.tpu_encode)
    spec = encoded.element_spec
    assert [s.dtype for s in (*spec["small"], spec["reward"])] == [
        *(tf.bfloat16, tf.int32),
        tf.float32,
    ]
    (element,) = encoded
    assert isinstance(element["frame"], utils.TPUEncodedUInt8)
    (decoded,) = encoded.map(utils.tpu_decode)
    for left, right in zip(tf.nest.flatten(decoded), tf.nest.flatten(nest), strict=True):
        np.testing.assert_array_equal(tf.cast(left, tf.float32), tf.cast(right, tf.float32))


def test_decode_into_another_structure():
    frames = some_of("uint8", PACKABLE)
    decoded = utils.tpu_decode(utils.tpu_encode((frames, tf.constant(1))), structure=[0, 0])
    assert isinstance(decoded, list)
    np.testing.assert_array_equal(decoded[0], frames)
