"""Actors that run in the test's process, against a learner whose answers the test writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting.actor import ActorConfig, actor_loop
from seed_rl.common.errors import ExitCode
from seed_rl.common.types import EnvOutput
from seed_rl.grpc.errors import CallError, StatusCode
from seed_rl.testing import envs
from seed_rl.testing.scripted_learner import ScriptedLearner

OBSERVATIONS = envs.LifeStepEnv().observation_space
ACTIONS = spaces.Discrete(2)


class Recorder:
    """Answers random actions, keeps the calls and ends the actor after some of them."""

    def __init__(self, calls: int = 10, end: CallError | None = None):
        self.calls: list[tuple[np.ndarray, np.ndarray, EnvOutput, np.ndarray]] = []
        self.actions: list[np.ndarray] = []
        self._limit = calls
        self._end = end or CallError(StatusCode.FAILED_PRECONDITION, "A newer actor is here.")
        self._random = np.random.default_rng(0)

    def __call__(self, env_ids: Any, run_ids: Any, env_outputs: Any, raw_rewards: Any) -> Any:
        if len(self.calls) >= self._limit:
            raise self._end
        self.calls.append((env_ids, run_ids, env_outputs, raw_rewards))
        self.actions.append(self._random.integers(2, size=len(env_ids)))
        return self.actions[-1]


def run(
    learner: ScriptedLearner,
    create_env_fn: Callable[[int, Any], Any],
    env_config: Any = None,
    **options: Any,
) -> ExitCode:
    """Runs an actor until it ends by itself."""
    with pytest.raises(SystemExit) as ending:
        config = ActorConfig(server_address=learner.address, **options)
        actor_loop(create_env_fn, config, env_config)
    return ExitCode(ending.value.code)


def serve(inference: Any, **kwargs: Any) -> ScriptedLearner:
    return ScriptedLearner(OBSERVATIONS, ACTIONS, inference, **kwargs)


def make(env_id: int, config: Any = None) -> envs.LifeStepEnv:
    return envs.LifeStepEnv(episode_length=3 + env_id, truncate=env_id % 2 == 1)
