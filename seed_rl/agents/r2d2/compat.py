"""What existing programs use of the R2D2 learner besides `learner_loop`.

Importing this module defines the learner's flags, which such programs do not define themselves.
Functions without a configuration argument read the flags.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.agents.r2d2 import losses
from seed_rl.agents.r2d2.config import R2D2Config, validate
from seed_rl.common.compat import original_defaults, replay_dataset
from seed_rl.common.compat.replay_dataset import get_replay_insertion_batch_size
from seed_rl.common.config import learner_config, options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput

__all__ = [
    "EpisodeInfo",
    "Unroll",
    "compute_loss_and_priorities",
    "compute_loss_and_priorities_from_agent_outputs",
    "create_dataset",
    "get_num_training_envs",
    "get_replay_insertion_batch_size",
    "is_training_env",
    "validate_config",
]

options.provide_flags(
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
    """Training batches: each waits for new unrolls, inserts them into the replay, and samples it.

    `learner_loop` uses the faster `seed_rl.common.learner.replay_pipeline` instead.

    Args:
      unroll_queue: `StructuredFIFOQueue` of `Unroll`s.
      replay_buffer: `PrioritizedReplay` of the same.
      strategy: training strategy.
      batch_size: unrolls sampled per replica.
      priority_exponent: unrolls are sampled in proportion to priority ** priority_exponent.
      encode: applied to each batch.

    Returns:
      A distributed dataset of `SampledUnrolls`, time-major.
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
    return run.num_envs - run.num_eval_envs


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
        options, training_agent_output, target_agent_output, env_outputs, agent_outputs.action
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
        env_outputs,
        agent_outputs.action,
    )
    return losses.unroll_losses(td), losses.priorities(td, options.priority_eta)


def validate_config() -> None:
    """Checks the options of the flags together.

    Raises:
      UserError: naming the options to change.
    """
    run, learner = options.from_flags(RunConfig), options.from_flags(LearnerConfig)
    learner_config.validate(run, learner, num_replicas=1)
    validate(run, learner, options.from_flags(R2D2Config), options.from_flags(ReplayConfig))


def _options(**changes: Any) -> R2D2Config:
    return dataclasses.replace(options.from_flags(R2D2Config), **changes)
