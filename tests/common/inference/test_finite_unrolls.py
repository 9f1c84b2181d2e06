"""Unrolls with NaN or infinity are reported and have no effect on training."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.inference import finite_unrolls
from seed_rl.common.inference.finite_unrolls import NonFiniteUnrolls
from seed_rl.common.types import LARGEST, EnvOutput, Step, StoredUnrolls

TIME, BATCH = 3, 5
ENV_IDS = np.array([4, 9, 2, 7, 0], np.int32)


def unrolls(spoil=lambda unrolls: None):
    """A batch as the store hands it over, after `spoil` has changed its arrays."""
    rng = np.random.default_rng(0)
    shape = (TIME, BATCH)
    done = rng.random(shape) < 0.3
    env_outputs = EnvOutput(
        rng.normal(size=shape).astype(np.float32),
        done,
        {
            "image": rng.integers(1, 255, (*shape, 2, 2), np.uint8),
            "body": rng.normal(size=(*shape, 6)),
            "half": np.full(shape, 65504, np.float16),  # The largest there is.
        },
        done & (rng.random(shape) < 0.5),
        np.ones(shape, np.int32),
    )
    # Logits of forbidden actions are infinite, which is no fault.
    logits = np.full((*shape, 2), -np.inf, np.float32)
    state = (rng.normal(size=(BATCH, 4)).astype(np.float32), np.ones([BATCH], np.int32))
    batch = StoredUnrolls(ENV_IDS, state, Step(np.ones(shape, np.int32), env_outputs, logits))
    spoil(batch)
    return tf.nest.map_structure(tf.constant, batch)


def leave_out(batch):
    """(result, log), inside a graph, as training batches are made."""
    log = NonFiniteUnrolls()
    dataset = tf.data.Dataset.from_tensors(0).map(lambda _: finite_unrolls.leave_out(batch, log))
    return next(iter(dataset)), log


def set_value(array, index, value):
    array[index] = value


SPOILERS = {
    "reward": lambda u: set_value(u.steps.env_outputs.reward, (1, 3), np.inf),
    "large reward": lambda u: set_value(u.steps.env_outputs.reward, (0, 3), -1.1 * LARGEST),
    "half": lambda u: set_value(u.steps.env_outputs.observation["half"], (0, 3), np.inf),
    "observation": lambda u: set_value(u.steps.env_outputs.observation["body"], (2, 3, 5), np.nan),
    "state": lambda u: set_value(u.agent_state[0], (3, 0), -np.inf),
}


@pytest.mark.parametrize("where", SPOILERS)
def test_what_is_not_finite_has_no_effect(where, caplog):
    """Guards a training batch from one environment's NaN, and that its id is reported."""
    result, log = leave_out(unrolls(SPOILERS[where]))
    expected, others = unrolls(), np.arange(BATCH) != 3
    for axis, pick in ((0, lambda u: u.agent_state), (1, lambda u: u.steps)):
        pairs = zip(tf.nest.flatten(pick(result)), tf.nest.flatten(pick(expected)), strict=True)
        for got, wanted in pairs:
            assert got.dtype == wanted.dtype and got.shape == wanted.shape
            rows = np.compress(others, got, axis), np.compress(others, wanted, axis)
            np.testing.assert_array_equal(*rows)
            # Numbers that a network can take, in place of those that it cannot.
            if got.dtype != tf.bool:
                np.testing.assert_array_equal(np.take(got, 3, axis), np.take(wanted, 0, axis))
    reported = result.steps.env_outputs
    assert np.all(reported.abandoned.numpy()[:, 3]) and np.all(reported.done.numpy()[:, 3])
    assert log.count == 1 and "environments 7: 1 unroll" in log.warning()
    assert "environments 7: 1 unroll" in caplog.text and "left out of training" in caplog.text


def test_finite_unrolls_pass_unchanged(caplog):
    result, log = leave_out(unrolls())
    for got, wanted in zip(tf.nest.flatten(result), tf.nest.flatten(unrolls()), strict=True):
        np.testing.assert_array_equal(got, wanted)
    assert log.count == 0 and log.warning() is None and not caplog.records


@pytest.mark.parametrize("value", [np.nan, 1.1 * LARGEST])
def test_a_batch_without_a_finite_unroll_is_not_finite(value):
    """Guards that such a batch counts as a skipped step, instead of one that learns nothing."""

    def spoil(batch):
        batch.steps.env_outputs.reward[0] = value

    result, log = leave_out(unrolls(spoil))
    assert np.isnan(result.steps.env_outputs.reward[0]).all()
    assert not result.steps.env_outputs.abandoned.numpy().all()
    assert log.count == BATCH and "environments 0, 2, 4, 7, 9" in log.warning()


def test_warnings_are_few(caplog):
    """Guards the log of a long run from a line per unroll."""
    log = NonFiniteUnrolls()
    for _ in range(1000):
        log.note(np.arange(50, dtype=np.int32))
    assert len(caplog.records) == 1
    assert log.warning().endswith(
        "environments 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...: 50,000 unrolls so far"
    )
