"""Operations on nests with time and batch dimensions."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils


def test_make_time_major_swaps_batch_and_time():
    x = {"a": tf.reshape(tf.range(24), [2, 3, 4]), "b": tf.zeros([2, 3])}
    swapped = utils.make_time_major(x)
    np.testing.assert_array_equal(swapped["a"], np.swapaxes(x["a"].numpy(), 0, 1))
    assert swapped["b"].shape == [3, 2]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_split_structure_cuts_in_two(axis, prefix):
    x = (tf.reshape(tf.range(36), [4, 3, 3]), tf.reshape(tf.range(12), [4, 3]))
    first, rest = utils.split_structure(x, prefix, axis)
    for whole, left, right in zip(x, first, rest, strict=True):
        assert left.shape[axis] == prefix
        np.testing.assert_array_equal(tf.concat([left, right], axis), whole)
