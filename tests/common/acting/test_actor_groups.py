"""Actors that split their environments into groups."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from seed_rl.common.acting.actor import ActorConfig, actor_loop
from seed_rl.common.errors import ExitCode, UserError
from seed_rl.testing import envs
from tests.helpers.actor_runs import Recorder, make, run, serve
from tests.helpers.waiting import PATIENCE_S


def test_groups_take_turns() -> None:
    """While a group steps, the other's call is at the learner; each call has its own steps."""
    recorder = Recorder(calls=40)
    arrived = [threading.Semaphore(0), threading.Semaphore(0)]  # By group.
    in_time: list[bool] = []

    def inference(env_ids: Any, *rest: Any) -> Any:
        arrived[int(env_ids[0]) // 2].release()
        return recorder(env_ids, *rest)

    class Env(envs.LifeStepEnv):
        def __init__(self, env_id: int):
            super().__init__(episode_length=3)
            self._env_id = env_id

        def step(self, action: Any) -> Any:
            if self._env_id % 2 == 0:  # The first of its group.
                other = arrived[1 - self._env_id // 2]
                in_time.append(all(in_time) and other.acquire(timeout=PATIENCE_S))
            return super().step(action)

    with serve(inference) as learner:
        code = run(learner, lambda i, config: Env(i), env_batch_size=4, env_groups=2)
    assert code == ExitCode.SUPERSEDED
    assert all(in_time) and len(in_time) > 30
    assert len({int(run_id) for call in recorder.calls for run_id in call[1]}) == 1
    for group in range(2):
        calls = [call for call in recorder.calls if call[0][0] == 2 * group]
        assert len(calls) == 20
        assert all(call[0].tolist() == [2 * group, 2 * group + 1] for call in calls)
        steps = np.stack([call[2].episode_step for call in calls])
        np.testing.assert_array_equal(steps, np.arange(20)[:, None] % 3 + np.zeros((1, 2), int))


def test_groups_of_unequal_size(socket_address: str) -> None:
    config = ActorConfig(server_address=socket_address, env_batch_size=4, env_groups=3)
    with pytest.raises(UserError, match="--env_groups=3 does not divide --env_batch_size=4"):
        actor_loop(make, config)
