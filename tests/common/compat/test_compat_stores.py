"""Stores that existing programs make themselves."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils

STEP = {"a": tf.TensorSpec([2], tf.float32), "b": (tf.TensorSpec([], tf.int32),)}


def step(values):
    values = np.asarray(values, np.int32)
    return {"a": np.stack([values, -values], 1).astype(np.float32), "b": (values,)}


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize("overlap", [0, 2])
def test_unroll_store_equals_lists(wrap, overlap):
    """Guards which steps are in which unroll, across resets, in batches of any environments."""
    rng = np.random.default_rng(overlap)
    num_envs, unroll_length = 4, 3
    size = overlap + unroll_length + 1
    store = utils.UnrollStore(num_envs, unroll_length, STEP, num_overlapping_steps=overlap)
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


def test_unroll_store_tells_its_specs_and_refuses_duplicates():
    store = utils.UnrollStore(3, 4, STEP, num_overlapping_steps=1)
    assert store.unroll_specs["a"] == tf.TensorSpec([6, 2], tf.float32)
    assert store.unroll_specs["b"] == (tf.TensorSpec([6], tf.int32),)
    for append in (store.append, tf.function(store.append)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Duplicate environment ids"):
            append(tf.constant([1, 1]), step([0, 0]))
        with pytest.raises(tf.errors.InvalidArgumentError, match="Environment id 3"):
            append(tf.constant([3]), step([0]))


def test_an_error_in_one_unroll_store_holds_up_no_other():
    """Guards that stores share no lock: an error that is kept keeps the lock of its call."""
    stores = [utils.UnrollStore(3, 4, STEP) for _ in range(2)]
    with pytest.raises(tf.errors.InvalidArgumentError) as kept:
        stores[0].append(tf.constant([1, 1]), step([0, 0]))
    ids, _ = stores[1].append(tf.constant([1, 2]), step([0, 0]))
    assert kept.value is not None and not len(ids)


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
