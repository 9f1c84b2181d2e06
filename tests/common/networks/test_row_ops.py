"""Moving whole rows, against NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.networks import row_ops

# Rows of words of four bytes, rows that are not, and types that stay as they are.
_ROWS = [
    *(((4, 2, 3), np.uint8), ((5, 3), np.uint8), ((4,), np.int16), ((3,), np.uint16)),
    *(((8,), np.int8), ((), np.uint8), ((16,), bool), ((4, 2), np.float32), ((2,), np.int32)),
]


def _random(shape, dtype):
    rng = np.random.default_rng(0)
    return rng.integers(0, 2 if dtype is bool else 128, shape).astype(dtype)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("row", "dtype"), _ROWS)
def test_gather(row, dtype, known):
    """Guards values, types and shapes, along both axes and with unknown sizes."""
    tensor, rows = _random((6, 7, *row), dtype), np.array([3, 0, 3, 5])
    spec = tf.TensorSpec([6, 7, *row] if known else [None, None, *row], dtype)
    for axis in (0, 1):

        @tf.function(autograph=False)
        def gather(tensor, rows, axis=axis):
            return row_ops.gather(tensor, rows, axis)

        graph = gather.get_concrete_function(spec, tf.TensorSpec([None], tf.int64))
        np.testing.assert_array_equal(
            graph(tf.constant(tensor), tf.constant(rows)), tensor.take(rows, axis)
        )
        assert graph.structured_outputs.shape[2:] == row


@pytest.mark.parametrize(("row", "dtype"), _ROWS)
def test_select(row, dtype):
    """Guards values and types."""
    chosen, other = _random((2, 5, *row), dtype)
    condition = np.array([True, False, False, True, False])
    selected = row_ops.select(tf.constant(condition), tf.constant(chosen), tf.constant(other))
    expected = np.stack([chosen[i] if c else other[i] for i, c in enumerate(condition)])
    np.testing.assert_array_equal(selected, expected)
    assert selected.dtype == tf.as_dtype(dtype)
