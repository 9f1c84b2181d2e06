"""The R2D2 learner as programs written for the original import it.

Importing this module defines the learner's flags, which such programs do not define themselves.
Functions without a configuration argument read the flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.agents.r2d2 import losses
from seed_rl.agents.r2d2.algorithm import create_job
from seed_rl.agents.r2d2.config import R2D2Config, validate
from seed_rl.agents.r2d2.losses import (
    apply_epsilon_greedy,
    get_envs_epsilon,
    inverse_value_function_rescaling,
    n_step_bellman_target,
    value_function_rescaling,
)
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.job import CreateOptimizer
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput
from seed_rl.compat import imported_flags, learning, original_defaults, r2d2_agents, replay_dataset
from seed_rl.compat.replay_dataset import get_replay_insertion_batch_size

__all__ = [
    "EpisodeInfo",
    "SampledUnrolls",
    "Unroll",
    "apply_epsilon_greedy",
    "compute_loss_and_priorities",
    "compute_loss_and_priorities_from_agent_outputs",
    "create_dataset",
    "get_envs_epsilon",
    "get_num_training_envs",
    "get_replay_insertion_batch_size",
    "inverse_value_function_rescaling",
    "is_training_env",
    "learner_loop",
    "n_step_bellman_target",
    "validate_config",
    "value_function_rescaling",
]

imported_flags.provide(
    RunConfig,
    R2D2Config,
    ReplayConfig,
    OptimizerConfig,
    LearnerConfig,
    DeviceConfig,
    presets=(original_defaults.R2D2,),
)


class EpisodeInfo(NamedTuple):
    """Finished episodes, for programs that record their own; nothing in this package uses it.

    Attributes:
      num_frames: <int64>[k] length in environment frames.
      returns: <float32>[k] sum of the rewards.
      raw_returns: <float32>[k] sum of the unshaped rewards (the game's score).
      env_ids: <int32>[k] ids of their environments.
    """

    num_frames: Any
    returns: Any
    raw_returns: Any
    env_ids: Any


class Unroll(NamedTuple):
    """An unroll as existing programs create and replay it, nests of [time, ...].

    Attributes:
      agent_state: nest of [...], before the first step.
      priority: <float32>[], the initial one.
      prev_actions: nest of [time, ...].
      env_outputs: nest of [time, ...].
      agent_outputs: nest of [time, ...].
    """

    agent_state: Nest
    priority: Any
    prev_actions: Nest
    env_outputs: EnvOutput
    agent_outputs: Nest


def create_dataset(
    unroll_queue: Any,
    replay_buffer: Any,
    strategy: tf.distribute.Strategy,
    batch_size: int,
    priority_exponent: float,
    encode: Callable[[Nest], Nest],
) -> Any:
    """`replay_dataset.replay_dataset` of `Unroll`s, in a `ReplayStore`.

    `learner_loop` uses the faster `seed_rl.common.learner.replay_pipeline` instead. `encode` is
    applied to each batch, a `SampledUnrolls`.
    """
    return replay_dataset.replay_dataset(
        unroll_queue,
        replay_buffer,
        strategy,
        batch_size,
        priority_exponent,
        lambda unrolls: unrolls.priority,
        lambda indices, weights, unrolls: encode(SampledUnrolls(unrolls, indices, weights)),
    )


def get_num_training_envs() -> int:
    """Environments that are trained on."""
    run = options.from_flags(RunConfig)
    return run.training_envs


def is_training_env(env_id: Any) -> Any:
    """Whether these environments are trained on, <bool>[...]."""
    return env_id < get_num_training_envs()


def compute_loss_and_priorities_from_agent_outputs(
    training_agent_output: Any,
    target_agent_output: Any,
    env_outputs: EnvOutput,
    agent_outputs: Any,
    gamma: float,
    eta: float = 0.9,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Losses and priorities of unrolls of T + 1 steps.

    Args:
      training_agent_output: with `q_values` <float32>[time + 1, batch, actions].
      target_agent_output: of the target network, in the same form.
      env_outputs: nest of [time + 1, batch, ...].
      agent_outputs: with `action` <int>[time + 1, batch], the actions taken.
      gamma: discount factor.
      eta: weight of the largest error in a priority, see `losses.priorities`.

    Returns:
      (losses <float32>[batch], priorities <float32>[batch]).
    """
    options = _options(discounting=gamma)
    td = losses.td_errors(
        options,
        training_agent_output.q_values,
        target_agent_output.q_values,
        EnvOutput(*env_outputs),
        agent_outputs.action,
    )
    return losses.unroll_losses(td), losses.priorities(td, eta)


def compute_loss_and_priorities(
    training_agent: Any,
    target_agent: Any,
    agent_state: Nest,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    agent_outputs: Any,
    gamma: float,
    burn_in: int,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Runs both networks on unrolls of burn_in + T + 1 steps; see `losses.replay_errors`.

    Returns:
      (losses <float32>[batch], priorities <float32>[batch]).
    """
    options = _options(discounting=gamma, burn_in=burn_in)
    td = losses.replay_errors(
        options,
        training_agent,
        target_agent,
        agent_state,
        prev_actions,
        EnvOutput(*env_outputs),
        agent_outputs.action,
    )
    return losses.unroll_losses(td), losses.priorities(td, options.priority_eta)


def validate_config() -> None:
    """Checks the options of the flags together.

    Raises:
      UserError: naming the options to change.
    """
    run, learner = learning.validated()
    validate(run, learner, options.from_flags(R2D2Config), options.from_flags(ReplayConfig))


def learner_loop(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: Callable[[EnvOutput, int], tf.Module],
    create_optimizer_fn: CreateOptimizer | None = None,
    **options: Any,
) -> None:
    """Trains until all frames are used; see `learning.train`.

    `create_agent_fn(env_output_specs, num_actions)` returns the network.
    """
    create_agent_fn = r2d2_agents.with_spaces(create_agent_fn)
    learning.train(create_job, create_env_fn, create_agent_fn, create_optimizer_fn, **options)


def _options(**changes: Any) -> R2D2Config:
    return dataclasses.replace(options.from_flags(R2D2Config), **changes)
