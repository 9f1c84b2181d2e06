"""What the learners of the original have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seed_rl.common.config import learner_config
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob
from seed_rl.common.run_files import saved_flags
from seed_rl.compat import programs


def train(
    create_job: Callable[..., TrainingJob],
    create_env_fn: programs.CreateEnv,
    create_agent_fn: Callable[..., Any],
    create_optimizer_fn: CreateOptimizer | None = None,
    **options: Any,
) -> None:
    """The `learner_loop` of an agent: trains until all frames are used, or SIGTERM or SIGINT.

    Args:
      create_job: of the agent's `algorithm`.
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment.
      create_agent_fn: returns the network, in either call form. Its arguments are those of
        `create_job`'s.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); None: `optimizer` configures one.
      **options: further keyword arguments of `create_job`; those of the flags if not given.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    if "run" not in options:
        saved_flags.adopt_saved_run()
    env_config = options.pop("env_config", None)
    create_env_fn, env_config = programs.with_typed_options(create_env_fn, env_config)
    job = create_job(
        create_env_fn, create_agent_fn, create_optimizer_fn, env_config=env_config, **options
    )
    job.execute()


def validated() -> tuple[RunConfig, LearnerConfig]:
    """The options of the flags, which fit together.

    Raises:
      UserError: they do not; it names the options to change.
    """
    run, learner = from_flags(RunConfig), from_flags(LearnerConfig)
    learner_config.validate(run, learner, num_replicas=1)
    return run, learner
