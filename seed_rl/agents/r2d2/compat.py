"""What existing programs expect of the R2D2 learner besides `learner_loop`.

Importing it provides the learner's flags, which existing programs do not define themselves.
Functions without a configuration argument take the options of the flags.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from seed_rl.agents.r2d2 import losses
from seed_rl.agents.r2d2.config import R2D2Config, validate
from seed_rl.agents.r2d2.program import WORKSTATION
from seed_rl.common import config
from seed_rl.common.device_config import DeviceConfig
from seed_rl.common.learner_config import LearnerConfig
from seed_rl.common.nest import Nest
from seed_rl.common.optimizer import OptimizerConfig
from seed_rl.common.replay.config import ReplayConfig
from seed_rl.common.run_config import RunConfig
from seed_rl.common.types import EnvOutput

config.provide_flags(
    RunConfig,
    R2D2Config,
    ReplayConfig,
    OptimizerConfig,
    LearnerConfig,
    DeviceConfig,
    **WORKSTATION,
)


def get_num_training_envs() -> int:
    """Environments that are trained on."""
    run = config.from_flags(RunConfig)
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
      target_agent_output: likewise, of the target network.
      env_outputs: nest of [time + 1, batch, ...].
      agent_outputs: with `action` <int>[time + 1, batch], those taken.
      gamma: discount factor.
      eta: see `losses.priorities`.

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
    """The same for unrolls of burn_in + T + 1 steps, through both networks.

    See `losses.replay_errors` for the arguments.
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
    run, learner = config.from_flags(RunConfig), config.from_flags(LearnerConfig)
    validate(run, learner, config.from_flags(R2D2Config))


def _options(**changes: Any) -> R2D2Config:
    return dataclasses.replace(config.from_flags(R2D2Config), **changes)
