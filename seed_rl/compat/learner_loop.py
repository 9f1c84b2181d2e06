"""What the `learner_loop`s of the original have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seed_rl.common.learner.job import CreateOptimizer, TrainingJob
from seed_rl.common.run_files import saved_flags
from seed_rl.compat import programs


def run(
    create_job: Callable[..., TrainingJob],
    create_env_fn: programs.CreateEnv,
    create_agent_fn: Callable[..., Any],
    create_optimizer_fn: CreateOptimizer | None,
    options: dict[str, Any],
) -> None:
    """Trains to the end of the run.

    Args:
      create_job: of the agent's `algorithm`.
      create_env_fn: first argument of `create_job`, as the next two.
      create_agent_fn: see `create_env_fn`.
      create_optimizer_fn: see `create_env_fn`.
      options: its keyword arguments; those that are missing come from the flags.
    """
    if "run" not in options:
        saved_flags.adopt_saved_run()
    create_env_fn, env_config = programs.with_typed_options(
        create_env_fn, options.pop("env_config", None)
    )
    create_job(
        create_env_fn, create_agent_fn, create_optimizer_fn, env_config=env_config, **options
    ).execute()
