"""The SAC learner as programs written for the original import it.

Importing this module defines the learner's flags, which such programs do not define themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.sac.algorithm import SAC, create_job
from seed_rl.agents.sac.compat import Unroll, compute_loss, create_dataset, validate_config
from seed_rl.common.compat.replay_dataset import get_replay_insertion_batch_size
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.learner.job import CreateOptimizer
from seed_rl.common.run_files import saved_flags

__all__ = [
    "SAC",
    "Unroll",
    "compute_loss",
    "create_dataset",
    "get_replay_insertion_batch_size",
    "learner_loop",
    "validate_config",
]


def learner_loop(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: Callable[[Any, Any, ParametricDistribution], tf.Module],
    create_optimizer_fn: CreateOptimizer | None = None,
    **options: Any,
) -> None:
    """Trains until all frames are used, or SIGTERM or SIGINT.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment.
      create_agent_fn: `create_agent_fn(action_space, observation_space,
        parametric_action_distribution)` returns the network, see `networks`.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default, `optimizer` configures one.
      **options: further keyword arguments of `algorithm.create_job`, such as `run`, `config`,
        `sac`, `replay`, `hindsight`, `optimizer` and `algorithm`; those of the flags if not given.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    if "run" not in options:
        saved_flags.adopt_saved_run()
    create_job(create_env_fn, create_agent_fn, create_optimizer_fn, **options).execute()
