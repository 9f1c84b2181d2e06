"""The replay that programs fill and sample themselves."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils

ELEMENT = {"x": tf.TensorSpec([3, 2], tf.uint8), "n": tf.TensorSpec([], tf.int32)}


def elements(numbers):
    numbers = np.asarray(numbers, np.int32)
    return {"x": np.tile(numbers.astype(np.uint8)[:, None, None], (1, 3, 2)), "n": numbers}


def test_insert_returns_slots_that_are_cyclic(wrap):
    """Guards slots from 0 around the ring, and the count of everything inserted."""
    replay = utils.PrioritizedReplay(4, ELEMENT, importance_sampling_exponent=0.6)
    insert = wrap(replay.insert)
    assert replay.num_inserted.numpy() == 0
    slots = insert(elements([0, 1, 2]), tf.ones([3]))
    assert slots.dtype == tf.int64
    assert slots.numpy().tolist() == [0, 1, 2]
    assert insert(elements([3, 4, 5]), tf.ones([3])).numpy().tolist() == [3, 0, 1]
    assert replay.num_inserted.numpy() == 6


@pytest.mark.parametrize("inner", ["loop", "function"])
def test_calls_of_one_function_are_in_order(inner):
    """Guards what TensorFlow does not order by itself: a loop's inserts and the sample after it."""
    replay = utils.PrioritizedReplay(1, tf.TensorSpec([], tf.int32), 0.6)

    def insert(value):
        return replay.insert(tf.fill([1], value), tf.ones([1]))

    def loop():
        for value in tf.range(50):
            insert(value)
        return replay.sample(1, 1.0)

    def function():
        inserting = tf.function(insert)
        for value in range(50):
            inserting(tf.constant(value))
        return replay.sample(1, 1.0)

    insert_and_sample = tf.function(locals()[inner])
    assert [int(insert_and_sample()[2][0]) for _ in range(3)] == [49] * 3


def test_prioritized_replay():
    """Guards probabilities, importance weights, eviction and new priorities, in a graph too."""
    specs = {"x": tf.TensorSpec([2, 3], tf.uint8), "n": tf.TensorSpec([], tf.int32)}
    replay = utils.PrioritizedReplay(4, specs, importance_sampling_exponent=0.5)
    with pytest.raises(ValueError, match="empty"):
        replay.sample(1, 1.0)
    numbers = np.arange(5, dtype=np.int32)
    values = {"x": np.tile(numbers.astype(np.uint8)[:, None, None], (1, 2, 3)), "n": numbers}
    tf.function(replay.insert)(values, tf.constant([1.0, 1.0, 1.0, 1.0, 9.0]))

    sample = tf.function(lambda exponent: replay.sample(1200, exponent))
    slots, weights, drawn = sample(tf.constant(1.0))
    counts = np.bincount(drawn["n"], minlength=5)
    assert counts[0] == 0, "0 was the oldest of five in a replay of four"
    np.testing.assert_allclose(counts / 1200, [0, 1 / 12, 1 / 12, 1 / 12, 9 / 12], atol=0.05)
    np.testing.assert_allclose(weights, np.where(drawn["n"].numpy() == 4, 1 / 3, 1), rtol=1e-6)
    np.testing.assert_array_equal(drawn["x"][:, 1, 2], drawn["n"].numpy())

    newest = slots[int(np.argmax(drawn["n"]))]
    assert newest == 0, "4 took the place of 0"
    replay.update_priorities([newest], tf.constant([0.0]))
    assert 4 not in replay.sample(300, 1.0)[2]["n"].numpy()
    _, weights, drawn = sample(tf.constant(0.0))  # Uniform, whatever the priorities.
    np.testing.assert_allclose(np.bincount(drawn["n"], minlength=5)[1:] / 1200, 0.25, atol=0.05)
    np.testing.assert_array_equal(weights, 1)
    with pytest.raises(ValueError, match="slot"):
        replay.update_priorities([4], tf.constant([0.0]))
