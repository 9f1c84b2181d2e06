"""Contracts of the stores that existing programs make themselves."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils

STEP = {"x": tf.TensorSpec([2], tf.float32), "n": tf.TensorSpec([], tf.int32)}
ELEMENT = {"x": tf.TensorSpec([3, 2], tf.uint8), "n": tf.TensorSpec([], tf.int32)}


@pytest.fixture(params=["eager", "graph"])
def wrap(request):
    return tf.function if request.param == "graph" else lambda fn: fn


def step(values):
    values = np.asarray(values, np.int32)
    return {"x": np.stack([values, -values], 1).astype(np.float32), "n": values}


def elements(numbers):
    numbers = np.asarray(numbers, np.int32)
    return {"x": np.tile(numbers.astype(np.uint8)[:, None, None], (1, 3, 2)), "n": numbers}


def test_a_fresh_unroll_store_has_zeros_for_overlap(wrap):
    """Guards that the first unroll is complete after unroll_length + 1 appends, environment-major,
    and that later ones overlap with real steps.
    """
    store = utils.UnrollStore(3, 2, STEP, num_overlapping_steps=2)
    append = wrap(store.append)
    ids = tf.constant([0, 2])
    for value in (10, 20):
        assert append(ids, step([value, value + 1]))[0].shape == [0]
    completed, unrolls = append(ids, step([30, 31]))
    assert completed.numpy().tolist() == [0, 2]
    assert unrolls["n"].numpy().tolist() == [[0, 0, 10, 20, 30], [0, 0, 11, 21, 31]]
    assert unrolls["x"].shape == [2, 5, 2]
    assert unrolls["x"][1].numpy().tolist() == [[0, 0], [0, 0], [11, -11], [21, -21], [31, -31]]
    append(ids, step([40, 41]))
    _, unrolls = append(ids, step([50, 51]))
    assert unrolls["n"].numpy().tolist() == [[10, 20, 30, 40, 50], [11, 21, 31, 41, 51]]


def test_reset_fills_the_overlap_with_zeros_again(wrap):
    store = utils.UnrollStore(2, 2, STEP, num_overlapping_steps=2)
    append = wrap(store.append)
    ids = tf.constant([0, 1])
    append(ids, step([1, 2]))
    append(ids, step([3, 4]))
    wrap(store.reset)(tf.constant([1]))
    completed, unrolls = append(ids, step([5, 6]))
    assert completed.numpy().tolist() == [0]
    assert unrolls["n"].numpy().tolist() == [[0, 0, 1, 3, 5]]
    append(ids, step([7, 8]))
    completed, unrolls = append(ids, step([9, 10]))
    assert completed.numpy().tolist() == [0, 1]
    assert unrolls["n"].numpy().tolist() == [[1, 3, 5, 7, 9], [0, 0, 6, 8, 10]]


def test_a_refused_append_changes_nothing(wrap):
    """Guards that the zeros neither go missing nor come twice after an error."""
    store = utils.UnrollStore(2, 1, STEP, num_overlapping_steps=1)
    append = wrap(store.append)
    for bad, message in (([0, 0], "Duplicate environment ids"), ([0, 2], "Environment id 2")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            append(tf.constant(bad), step([1, 2]))
    append(tf.constant([0]), step([3]))
    assert append(tf.constant([0]), step([4]))[1]["n"].numpy().tolist() == [[0, 3, 4]]


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


def test_sample_and_update_priorities_speak_of_slots(wrap):
    """Guards that a slot of `sample` is the element's, and that priorities land in it."""
    replay = utils.PrioritizedReplay(4, ELEMENT, importance_sampling_exponent=0.6)
    wrap(replay.insert)(elements(range(6)), tf.ones([6]))
    in_slot = {0: 4, 1: 5, 2: 2, 3: 3}
    slots, weights, values = wrap(lambda: replay.sample(300, 1.0))()
    assert (slots.dtype, weights.dtype) == (tf.int64, tf.float32)
    assert values["x"].shape == [300, 3, 2]
    assert [in_slot[slot] for slot in slots.numpy()] == values["n"].numpy().tolist()
    wrap(replay.update_priorities)(tf.constant([0, 2, 3], tf.int64), tf.zeros([3]))
    assert set(replay.sample(100, 1.0)[2]["n"].numpy()) == {5}
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="slot"):
        wrap(replay.update_priorities)(tf.constant([4], tf.int64), tf.zeros([1]))


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


def test_weights_are_divided_by_their_largest(wrap):
    replay = utils.PrioritizedReplay(4, ELEMENT, importance_sampling_exponent=0.5)
    replay.insert(elements(range(4)), tf.constant([1.0, 1.0, 1.0, 4.0]))
    _, weights, values = wrap(lambda: replay.sample(400, 1.0))()
    expected = np.where(values["n"].numpy() == 3, 0.5, 1.0)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


def test_exponent_zero_is_uniform_with_weights_of_one(wrap):
    """Guards that priorities, even of 0, do not matter then."""
    replay = utils.PrioritizedReplay(4, ELEMENT, importance_sampling_exponent=0.6)
    replay.insert(elements(range(4)), tf.constant([0.0, 1.0, 2.0, 100.0]))
    _, weights, values = wrap(lambda: replay.sample(2000, 0.0))()
    assert (weights.numpy() == 1).all()
    counts = np.bincount(values["n"].numpy(), minlength=4)
    np.testing.assert_allclose(counts / 2000, 0.25, atol=0.05)


def test_get_non_dying_envs_returns_a_mask_and_ids(wrap):
    """Guards that of an environment twice in a batch only the row that asks for a reset stays."""
    keep = wrap(utils.get_non_dying_envs)
    mask, ids = keep(
        tf.constant([7, 2]), tf.constant([False, True, False, True]), tf.constant([7, 7, 1, 2])
    )
    assert mask.dtype == tf.bool
    assert mask.numpy().tolist() == [False, True, True, True]
    assert ids.numpy().tolist() == [7, 1, 2]
    mask, ids = keep(tf.zeros([0], tf.int32), tf.constant([False, False]), tf.constant([4, 3]))
    assert (mask.numpy().tolist(), ids.numpy().tolist()) == ([True, True], [4, 3])


@pytest.mark.parametrize(
    ("needing", "mask"), [([7], [True, True]), ([], [False, False])], ids=["reset", "no reset"]
)
def test_the_same_environment_twice_among_the_kept_is_an_error(wrap, needing, mask):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Duplicate"):
        wrap(utils.get_non_dying_envs)(
            tf.constant(needing, tf.int32), tf.constant(mask), tf.constant([7, 7])
        )
