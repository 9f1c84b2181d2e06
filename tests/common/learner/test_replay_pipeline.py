"""Unrolls on their way between inference, replay and training."""

from __future__ import annotations

import numpy as np

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.learner.replay_pipeline import BatchSource
from seed_rl.common.replay import FieldSpec, PrioritizedReplay
from seed_rl.common.types import EnvOutput, Unroll


def unrolls(rewards: list[float]) -> Unroll:
    """Unrolls of two steps, whose rewards and recurrent state are `rewards`."""
    array = np.array([rewards, rewards], np.float32)
    flags, count = np.zeros(array.shape, np.bool_), np.zeros(array.shape, np.int32)
    return Unroll(array[0], (), EnvOutput(array, flags, array, flags, count), ())


def test_large_numbers_of_a_saved_replay_are_not_trained_on() -> None:
    """Guards runs whose replay was saved without this check: priorities become 0."""
    number, flag, count = (FieldSpec((2,), dtype) for dtype in (np.float32, np.bool_, np.int32))
    state = FieldSpec((), np.float32, time=False)
    specs = Unroll(state, (), EnvOutput(number, flag, number, flag, count), ())
    replay = PrioritizedReplay(
        ReplayConfig(replay_buffer_min_size=1, replay_ratio=0.0), specs, seed=0
    )
    replay.insert(unrolls([1e25, 1, np.inf, 1]), [5, 1, 5, 1])
    source = BatchSource(replay, 32)
    try:
        batches = iter(source.dataset(lambda sampled: sampled))
        for _ in range(4):
            batch = next(batches)
            assert set(batch.indices.numpy()) <= {1, 3}
            np.testing.assert_array_equal(batch.unrolls.env_outputs.reward, np.ones((2, 32)))
            np.testing.assert_array_equal(batch.unrolls.agent_state, np.ones(32))
        assert replay.stats().mean_priority < 1
    finally:
        replay.close()
