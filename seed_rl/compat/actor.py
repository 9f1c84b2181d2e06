"""The actor as programs written for the original call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from seed_rl.common.acting import actor
from seed_rl.common.acting.actor import ActorConfig
from seed_rl.common.config.options import from_flags
from seed_rl.compat.programs import environment_options

__all__ = ["ActorConfig", "actor_loop", "are_summaries_enabled"]


def are_summaries_enabled(config: ActorConfig | None = None) -> bool:
    """Whether this actor logs its timing; without options, with those of the flags."""
    return actor.are_summaries_enabled(config or from_flags(ActorConfig))


def actor_loop(
    create_env_fn: Callable[[int, Any], Any],
    config: Any = None,
    env_config: Any = None,
    *,
    log_period: float = 1,
    **functions: Any,
) -> None:
    """As `acting.actor.actor_loop`.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment.
      config: an `ActorConfig`. Anything else is taken as `env_config`; the options of the actor
        then come from the flags, as do those of its environments if there is no `env_config`.
      env_config: options of the environments.
      log_period: multiplies `actor_log_period_s`.
      **functions: see `acting.actor.actor_loop`.
    """
    if not isinstance(config, ActorConfig):
        env_config = environment_options(config if env_config is None else env_config)
        config = from_flags(ActorConfig)
    period_s = config.actor_log_period_s * log_period
    config = dataclasses.replace(config, actor_log_period_s=period_s)
    actor.actor_loop(create_env_fn, config, env_config, **functions)
