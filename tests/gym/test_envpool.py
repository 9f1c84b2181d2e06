"""EnvPool's environments follow the episode protocol."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from seed_rl.common.errors import UserError
from seed_rl.gym import env
from seed_rl.gym.env import GymConfig

pytest.importorskip("envpool", reason="needs pip install envpool", exc_type=ImportError)


def make(size: int, **arguments: Any) -> Any:
    text = json.dumps({"task_id": "CartPole-v1", **arguments})
    vector = env.create_batch(np.arange(size), GymConfig("seed_rl.gym.envpool:make", text))
    assert vector is not None
    return vector


def test_episodes_end_within_the_step() -> None:
    """A terminated episode reports the next one's first observation; its neighbours continue."""
    vector = make(4)
    first = np.copy(vector.reset(seed=3))
    np.testing.assert_array_equal(vector.reset(seed=3), first)
    before, ends = first, 0
    for step in range(60):
        result = vector.step(np.array([1, 1, 0, step % 2]))
        new = np.abs(result.observation).max(axis=1) <= 0.05  # As after a reset.
        assert new[result.done].all()
        assert (result.episode_step[result.done] == 0).all()
        assert (result.reward == 1).all()
        # Positions change by little unless an episode ends.
        moved = np.abs(result.observation[:, 0] - before[:, 0])
        assert (moved[~result.done] < 0.1).all()
        before = np.copy(result.observation)
        ends += int(result.done.sum())
    assert ends >= 12


def test_truncated_episodes_report_their_last_observation() -> None:
    vector = make(2, max_episode_steps=4)
    vector.reset(seed=1)
    reports = [vector.step(np.array([0, 1])) for _ in range(1)]
    for _ in range(9):
        result = vector.step(np.array([0, 1]))
        reports.append(type(result)(*map(np.copy, result)))
    assert [bool(report.abandoned[0]) for report in reports] == [False] * 4 + [True] + [
        False
    ] * 4 + [True]
    assert [int(report.episode_step[1]) for report in reports[1:]] == [2, 3, 4, 0, 1, 2, 3, 4, 0]


def test_pools_without_a_seed_differ() -> None:
    """Guards actors, and games of an evaluation, from all being copies of one."""
    starts = [make(1).reset(seed=None)[0] for _ in range(4)]
    assert len(np.unique(starts, axis=0)) == 4
    chosen = [make(1, seed=3).reset(seed=None)[0] for _ in range(2)]
    np.testing.assert_array_equal(*chosen)


def test_unknown_names() -> None:
    with pytest.raises(UserError, match="EnvPool has no environment CartPool-v1"):
        make(1, task_id="CartPool-v1")
