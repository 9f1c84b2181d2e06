"""The programs of MuJoCo, from flags to returns."""

from __future__ import annotations

import math
from typing import Any

import pytest

from seed_rl.common.run_files import returns_log
from tests.helpers.system_helpers import train_to_end

pytestmark = pytest.mark.slow


def returns(logdir: Any) -> list[Any]:
    return list(returns_log.read(logdir / returns_log.FILE_NAME))


@pytest.mark.nightly
@pytest.mark.parametrize("discretization", ["none", "log"])
def test_vtrace_trains_on_half_cheetah(
    forks: Any, tmp_path: Any, socket_address: str, discretization: str
) -> None:
    """Guards continuous and discretized actions end to end; every episode has 1000 steps."""
    logdir = train_to_end(
        forks,
        tmp_path,
        socket_address,
        "seed_rl.mujoco.vtrace_main",
        10_000,
        f"--discretization={discretization}",
    )
    episodes = returns(logdir)
    assert {episode.env_id for episode in episodes} == set(range(8))
    assert {episode.episode_frames for episode in episodes} == {1000}
    assert all(math.isfinite(e.episode_return) and e.episode_return != 0 for e in episodes)
