"""Unrolls that programs collect themselves."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils

STEP = {"a": tf.TensorSpec([2], tf.float32), "b": (tf.TensorSpec([], tf.int32),)}


def step(values):
    values = np.asarray(values, np.int32)
    return {"a": np.stack([values, -values], 1).astype(np.float32), "b": (values,)}


@pytest.mark.parametrize("overlap", [0, 2])
def test_unroll_store_equals_lists(wrap, overlap):
    """Guards which steps are in which unroll, across resets, in batches of any environments: zeros
    for the overlap at first, real steps later.
    """
    rng = np.random.default_rng(overlap)
    num_envs, unroll_length = 4, 3
    size = overlap + unroll_length + 1
    store = utils.UnrollStore(num_envs, unroll_length, STEP, num_overlapping_steps=overlap)
    assert store.unroll_specs["b"] == (tf.TensorSpec([size], tf.int32),)
    append = wrap(store.append)
    expected = [[0] * overlap for _ in range(num_envs)]
    completed = 0
    for time in range(60):
        env_ids = np.flatnonzero(rng.random(num_envs) < 0.7).astype(np.int32)
        if rng.random() < 0.1:
            store.reset(env_ids)
            for env_id in env_ids:
                expected[env_id] = [0] * overlap
        ids, unrolls = append(tf.constant(env_ids), step(100 * time + env_ids))
        complete = {}
        for env_id in env_ids:
            expected[env_id].append(100 * time + env_id)
            if len(expected[env_id]) == size:
                complete[env_id] = expected[env_id]
                expected[env_id] = expected[env_id][-overlap - 1 :]
        assert sorted(ids.numpy()) == sorted(complete)
        assert unrolls["a"].shape == (len(complete), size, 2)
        for row, env_id in enumerate(ids.numpy()):
            np.testing.assert_array_equal(unrolls["b"][0][row], complete[env_id])
            np.testing.assert_array_equal(unrolls["a"][row, :, 1], -np.array(complete[env_id]))
        completed += len(complete)
    assert completed > 20


def test_an_error_in_one_unroll_store_holds_up_no_other():
    """Guards that stores share no lock: an error that is kept keeps the lock of its call."""
    stores = [utils.UnrollStore(3, 4, STEP) for _ in range(2)]
    with pytest.raises(tf.errors.InvalidArgumentError) as kept:
        stores[0].append(tf.constant([1, 1]), step([0, 0]))
    ids, _ = stores[1].append(tf.constant([1, 2]), step([0, 0]))
    assert kept.value is not None and not len(ids)


def test_a_refused_append_changes_nothing(wrap):
    """Guards that the zeros neither go missing nor come twice after an error."""
    store = utils.UnrollStore(2, 1, STEP, num_overlapping_steps=1)
    append = wrap(store.append)
    for bad, message in (([0, 0], "Duplicate environment ids"), ([0, 2], "Environment id 2")):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            append(tf.constant(bad), step([1, 2]))
    append(tf.constant([0]), step([3]))
    assert append(tf.constant([0]), step([4]))[1]["b"][0].numpy().tolist() == [[0, 3, 4]]
