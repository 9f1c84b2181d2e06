"""The R2D2 learner as programs written for the original import it.

Importing this module defines the learner's flags, which such programs do not define themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.r2d2.algorithm import R2D2, create_job
from seed_rl.agents.r2d2.compat import (
    EpisodeInfo,
    Unroll,
    compute_loss_and_priorities,
    compute_loss_and_priorities_from_agent_outputs,
    create_dataset,
    get_num_training_envs,
    get_replay_insertion_batch_size,
    is_training_env,
    validate_config,
)
from seed_rl.agents.r2d2.losses import (
    apply_epsilon_greedy,
    get_envs_epsilon,
    inverse_value_function_rescaling,
    n_step_bellman_target,
    value_function_rescaling,
)
from seed_rl.common.learner.job import CreateOptimizer
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.run_files import saved_flags
from seed_rl.common.types import EnvOutput

__all__ = [
    "R2D2",
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


def learner_loop(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: Callable[[EnvOutput, int], tf.Module],
    create_optimizer_fn: CreateOptimizer | None = None,
    **options: Any,
) -> None:
    """Trains until all frames are used, or SIGTERM or SIGINT.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment.
      create_agent_fn: `create_agent_fn(env_output_specs, num_actions)` returns the network, in
        either call form of `call_network`.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default, `optimizer` configures one.
      **options: further keyword arguments of `algorithm.create_job`, such as `run`, `config`,
        `r2d2`, `replay`, `optimizer` and `algorithm`; those of the flags if not given.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    if "run" not in options:
        saved_flags.adopt_saved_run()
    create_job(create_env_fn, create_agent_fn, create_optimizer_fn, **options).execute()
