"""The actor as programs written for the original call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from seed_rl.common.acting import actor
from seed_rl.common.acting.actor import ActorConfig
from seed_rl.common.config.options import from_flags
from seed_rl.compat.programs import environment_options

__all__ = ["actor_loop", "are_summaries_enabled"]


def are_summaries_enabled() -> bool:
    """Whether this actor, with the options of the flags, logs its timing."""
    return actor.are_summaries_enabled(from_flags(ActorConfig))


def actor_loop(
    create_env_fn: Callable[[int, Any], Any], config: Any = None, log_period: float = 1
) -> None:
    """As `acting.actor.actor_loop`, with the actor's options from the flags.

    Args:
      create_env_fn: `create_env_fn(env_id, config)` returns an environment.
      config: options of the environments; None: those of the flags.
      log_period: multiplies `actor_log_period_s`.
    """
    own = from_flags(ActorConfig)
    own = dataclasses.replace(own, actor_log_period_s=own.actor_log_period_s * log_period)
    actor.actor_loop(create_env_fn, own, environment_options(config))
