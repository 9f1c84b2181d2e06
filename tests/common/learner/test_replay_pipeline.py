"""Unrolls on their way between inference, replay and training."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner.replay_pipeline import PriorityWriter, ReplayMixer
from seed_rl.common.replay import FieldSpec, PrioritizedReplay
from seed_rl.common.types import EnvOutput, Unroll
from tests.helpers.waiting import wait_until

EMPTY = 12


def uniform_replay() -> PrioritizedReplay:
    number, flag, count = (FieldSpec((2,), dtype) for dtype in (np.float32, np.bool_, np.int32))
    state = FieldSpec((), np.float32, time=False)
    specs = Unroll([state, state], (), EnvOutput(number, flag, number, flag, count), ())
    config = ReplayConfig(replay_buffer_min_size=1, replay_ratio=0.0)
    return PrioritizedReplay(config, specs, seed=0)


def test_new_unrolls_are_mixed_with_all_earlier_ones() -> None:
    """Guards LASER's batches: the new ones first, each once, then the right number of others, with
    their own recurrent states (in a list, as Keras returns them); and a replay into which nothing
    comes that is not finite or has no transition.
    """
    count, ratio = 30, 3
    rewards = tf.reshape(tf.range(2.0 * count), [count, 2])
    rewards = tf.where(rewards == 7, np.inf, rewards)
    slices = tf.data.Dataset.from_tensor_slices(rewards)
    mixer = ReplayMixer(uniform_replay(), ratio)
    replayed: list[float] = []
    batches = mixer.dataset(
        lambda encode: slices.map(lambda r: encode(two_steps(r))),
        lambda unrolls: (*unrolls.agent_state, unrolls.env_outputs.reward),
    )
    for i, batch in enumerate(batches):
        one, two, reward = (tensor.numpy() for tensor in batch)
        assert reward.shape == (2, 8)
        np.testing.assert_array_equal(reward[0, :2], rewards[i])
        np.testing.assert_array_equal(reward, [one, one])
        np.testing.assert_array_equal(reward, [-two, -two])
        replayed.extend(reward[0, 2:])
    assert len(mixer.replay) == 2 * count - 2
    assert set(replayed) <= set(np.delete(np.arange(2 * count), [7, EMPTY]))
    assert len(set(replayed)) > count, "not only the newest"


def two_steps(rewards: tf.Tensor) -> Unroll:
    """Unrolls whose rewards and recurrent states are ±`rewards`; all of `EMPTY` is abandoned."""
    both = tf.stack([rewards, rewards])
    flags, steps = tf.equal(both, EMPTY), tf.zeros_like(both, tf.int32)
    return Unroll([rewards, -rewards], (), EnvOutput(both, flags, both, flags, steps), ())


def test_priorities_that_are_not_finite_end_the_run() -> None:
    """Guards that an error of the thread reaches the learner, before it saves a checkpoint, too."""
    writer, wrong = PriorityWriter(uniform_replay()), np.array([1.0, np.nan], np.float32)
    writer.put(np.arange(2), np.ones(2, np.float32))
    writer.put(np.arange(2), wrong)
    with pytest.raises(UserError, match="diverged"):
        writer.flush()
    writer.put(np.arange(2), wrong)
    wait_until(lambda: writer._pending[0].done())
    with pytest.raises(UserError, match="diverged"):
        writer.put(np.arange(2), np.ones(2, np.float32))
    writer.close()
    np.testing.assert_array_equal(writer.recent(), [1.0, 1.0])
