"""Runs of the on-policy agent in this process, from a gin config to the returns."""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import tensorflow as tf

from seed_rl.agents.policy_gradient import algorithm, gin_config, gin_options, program
from seed_rl.agents.policy_gradient.config import MinibatchSettings, OnPolicyConfig
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.job import TrainingJob


def load(config: str, bindings: Sequence[str] = ()) -> None:
    """Loads a shipped gin config with the preset of its family."""
    gin_config.load([config], bindings)
    family = pathlib.Path(config).parts[1]
    preset = importlib.import_module(f"seed_rl.{family}.ppo_main").PRESET
    gin_options.settle(gin_options.of_preset(preset.values))


def make_job(
    logdir: pathlib.Path,
    config: str,
    bindings: Sequence[str],
    make_env: Callable[[], gymnasium.Env[Any, Any]],
    frames: int,
    minibatches: MinibatchSettings,
    unroll_length: int = 16,
    **run: Any,
) -> TrainingJob:
    """A run with 32 environments of one actor, as the main programs set it up from flags.

    Its training steps are not compiled: that would take longer than to run them.

    Args:
      logdir: of the run.
      config: gin file.
      bindings: of gin, besides.
      make_env: creates an environment.
      frames: of the run.
      minibatches: of a training step.
      unroll_length: transitions per unroll.
      **run: further options of `RunConfig`.
    """
    load(config, bindings)
    tf.keras.utils.set_random_seed(1)
    return algorithm.create_job(
        lambda env_id, env_config: wrap_for_agent(make_env()),
        program.create_agent,
        create_loss=gin_config.create_loss,
        on_policy=OnPolicyConfig(),
        settings=minibatches,
        continuous=gin_config.continuous_action_config(),
        optimizer=gin_config.optimizer_config(),
        env_config={},
        device_config=DeviceConfig(jit="false"),
        run=RunConfig(
            logdir=str(logdir), **{"num_envs": 32, "env_batch_size": 32, "seed": 1, **run}
        ),
        config=LearnerConfig(total_environment_frames=frames, unroll_length=unroll_length),
    )
