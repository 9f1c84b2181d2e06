"""The SAC learner as programs written for the original import it.

Importing this module defines the learner's flags, which such programs do not define themselves.
Functions without a configuration argument read the flags.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.agents.sac import losses
from seed_rl.agents.sac.algorithm import create_job
from seed_rl.agents.sac.config import SACConfig, validate
from seed_rl.agents.sac.program import PRESET
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.replay_config import HindsightConfig, ReplayConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import Actions, ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.learner.coefficients import Coefficient, FixedCoefficient
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput
from seed_rl.compat import imported_flags, learning, original_defaults, replay_dataset
from seed_rl.compat.progress_logger import ProgressLogger, Session
from seed_rl.compat.replay_dataset import get_replay_insertion_batch_size

__all__ = [
    "Unroll",
    "compute_loss",
    "create_dataset",
    "get_replay_insertion_batch_size",
    "learner_loop",
    "validate_config",
]

imported_flags.provide(
    RunConfig,
    SACConfig,
    HindsightConfig,
    ReplayConfig,
    OptimizerConfig,
    LearnerConfig,
    ContinuousDistributionConfig,
    DeviceConfig,
    presets=(PRESET, original_defaults.SAC),
)


class Unroll(NamedTuple):
    """An unroll as existing programs create and replay it.

    Attributes:
      agent_state: nest of [...], before the first step.
      prev_actions: nest of [time, ...].
      env_outputs: nest of [time, ...].
      agent_actions: nest of [time, ...], taken after each step.
    """

    agent_state: Nest
    prev_actions: Nest
    env_outputs: EnvOutput
    agent_actions: Nest


def compute_loss(
    logger: ProgressLogger,
    parametric_action_distribution: ParametricDistribution,
    agent: Any,
    target_agent: Any,
    agent_state: Nest,
    prev_actions: Actions,
    env_outputs: EnvOutput,
    agent_actions: Actions,
) -> tuple[tf.Tensor, Session]:
    """The loss with the options of the flags; see `losses.compute_loss` for the arguments.

    The weight of the entropy is an attribute `entropy_cost` of the network, `agent`: a
    `Coefficient` that is trained with it (see `losses.create_temperature`); without one it is the
    number of the flag. `logger` creates the session.

    Returns:
      (loss <float32>[], session with the metrics).

    Raises:
      UserError: there is a target entropy but no such attribute.
    """
    config = options.from_flags(SACConfig)
    temperature = getattr(agent, "entropy_cost", None)
    if not isinstance(temperature, Coefficient):
        if config.target_entropy is not None:
            raise UserError(
                "--target_entropy needs a trained entropy cost: give the agent one with "
                "agent.entropy_cost = seed_rl.agents.sac.losses.create_temperature(SACConfig(...), "
                "action_space)."
            )
        temperature = FixedCoefficient(config.entropy_cost)
    loss, metrics = losses.compute_loss(
        config,
        parametric_action_distribution,
        agent,
        target_agent,
        temperature,
        agent_state,
        prev_actions,
        EnvOutput(*env_outputs),
        agent_actions,
    )
    return loss, logger.log_session_from_dict(metrics)


def create_dataset(
    unroll_queue: Any,
    replay_buffer: Any,
    strategy: tf.distribute.Strategy,
    batch_size: int,
    encode: Callable[[Nest], Nest],
) -> Any:
    """`replay_dataset.replay_dataset` of `Unroll`s, in a replay that is sampled uniformly.

    `learner_loop` uses the faster `seed_rl.common.learner.replay_pipeline` instead. `encode` is
    applied to each batch.
    """
    return replay_dataset.replay_dataset(
        unroll_queue,
        replay_buffer,
        strategy,
        batch_size,
        0.0,
        lambda unrolls: tf.ones(tf.shape(unrolls.env_outputs.reward)[:1]),
        lambda indices, weights, unrolls: encode(unrolls),
    )


def validate_config() -> None:
    """Checks the options of the flags together.

    Raises:
      UserError: naming the options to change.
    """
    run, learner = learning.validated()
    validate(run, learner, options.from_flags(ReplayConfig), options.from_flags(HindsightConfig))


learner_loop = functools.partial(learning.train, create_job)
"""Trains until all frames are used; see `learning.train`."""
