"""Runs of V-trace on CartPole in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from seed_rl.agents.vtrace import algorithm
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.networks.network_factory import create_network

OFTEN = {"log_period_secs": 0.1}
"""Options of a learner that reports as often as it can."""


def cart_pole(env_id: int = 0, config: Any = None) -> gymnasium.Env[Any, Any]:
    del env_id, config
    return wrap_for_agent(gymnasium.make("CartPole-v1"))


def _recurrent(actions: Any, observations: Any, distribution: Any) -> Any:
    return create_network(
        observations, distribution, mlp=MLPNetworkConfig(mlp_sizes=(8,), lstm_sizes=(8,))
    )


def make_job(
    logdir: str | os.PathLike[str],
    frames: int,
    create_env: Callable[[int, Any], gymnasium.Env[Any, Any]] = cart_pole,
    learner: Mapping[str, Any] | None = None,
    kind: type[algorithm.VTrace] = algorithm.VTrace,
    **run: Any,
) -> TrainingJob:
    """A run of a small recurrent network, with 40 frames in each training step.

    Args:
      logdir: of the run.
      frames: of the run.
      create_env: creates an environment.
      learner: further options of `LearnerConfig`.
      kind: the algorithm.
      **run: further options of `RunConfig`, besides four environments of two actors and a seed.
    """
    sizes = {"num_envs": 4, "env_batch_size": 2, "seed": 1, **run}
    return algorithm.create_job(
        create_env,
        _recurrent,
        # Not the flags, which another test may have parsed.
        vtrace=VTraceConfig(),
        algorithm=kind,
        env_config={},
        optimizer=OptimizerConfig(),
        device_config=DeviceConfig(),
        run=RunConfig(logdir=str(logdir), **sizes),
        config=LearnerConfig(
            total_environment_frames=frames, batch_size=4, unroll_length=10, **(learner or {})
        ),
    )
