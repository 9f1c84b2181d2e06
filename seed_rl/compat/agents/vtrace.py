"""The V-trace learner as programs written for the original import it.

Importing this module defines the learner's flags, which such programs do not define themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import flags

from seed_rl.agents.vtrace import losses
from seed_rl.agents.vtrace.algorithm import create_job
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.learner.algorithm import CreateAgent
from seed_rl.common.learner.coefficients import Coefficient
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob
from seed_rl.common.nest import Nest
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.types import EnvOutput, Unroll
from seed_rl.compat import imported_flags, learning, original_defaults
from seed_rl.compat.progress_logger import ProgressLogger, Session

__all__ = ["Unroll", "compute_loss", "learner_loop", "validate_config"]

imported_flags.provide(
    RunConfig,
    VTraceConfig,
    LearnerConfig,
    ContinuousDistributionConfig,
    DeviceConfig,
    presets=(original_defaults.VTRACE,),
)


def compute_loss(
    logger: ProgressLogger,
    parametric_action_distribution: ParametricDistribution,
    agent: Callable[..., Any],
    agent_state: Nest,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    agent_outputs: Any,
) -> tuple[tf.Tensor, Session]:
    """The loss with the options of the flags; see `losses.compute_loss` for the arguments.

    With `--target_entropy` the network, `agent`, must have an attribute `entropy_cost`, a
    `Coefficient` that is trained with it (see `losses.create_entropy_cost`). With `--popart`,
    `popart` of `losses.make_popart`, whose variables are trained. `logger` creates the session.

    Returns:
      (loss <float32>[], session with the metrics).

    Raises:
      UserError: the attribute that an option needs is missing.
    """
    config = options.from_flags(VTraceConfig)
    entropy_cost = getattr(agent, "entropy_cost", None)
    if not isinstance(entropy_cost, Coefficient):
        if config.target_entropy is not None:
            raise UserError(
                "--target_entropy needs a trained entropy cost: give the agent one with "
                "agent.entropy_cost = "
                "seed_rl.agents.vtrace.losses.create_entropy_cost(VTraceConfig(...))."
            )
        entropy_cost = losses.create_entropy_cost(config)
    popart = getattr(agent, "popart", None)
    if config.popart and not isinstance(popart, PopArt):
        raise UserError(
            "--popart needs statistics: give the agent them with "
            "agent.popart = seed_rl.agents.vtrace.losses.make_popart(VTraceConfig(...))."
        )
    loss, metrics = losses.compute_loss(
        config,
        parametric_action_distribution,
        agent,
        agent_state,
        prev_actions,
        EnvOutput(*env_outputs),
        agent_outputs,
        entropy_cost,
        popart=popart if config.popart else None,
    )
    return loss, logger.log_session_from_dict(metrics)


def validate_config() -> None:
    """Checks the options of the flags together.

    Raises:
      UserError: naming the options to change.
    """
    learning.validated()


def learner_loop(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    **options: Any,
) -> None:
    """Trains until all frames are used; see `learning.train`."""

    def create(*functions: Any, optimizer: Any = None, **rest: Any) -> TrainingJob:
        # Not before `train` has made the options of a saved run those of the flags.
        optimizer = optimizer or _optimizer_config(create_optimizer_fn)
        return create_job(*functions, optimizer=optimizer, **rest)

    learning.train(create, create_env_fn, create_agent_fn, create_optimizer_fn, **options)


def _optimizer_config(create_optimizer_fn: Any) -> OptimizerConfig:
    """Optimizer options from flags; with the program's own optimizer, clips only if it asks to."""
    config = options.from_flags(OptimizerConfig)
    if create_optimizer_fn is not None and "clip_norm" not in flags.FLAGS:
        return dataclasses.replace(config, clip_norm=None)
    return config
