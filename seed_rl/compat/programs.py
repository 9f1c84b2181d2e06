"""Calls of the original's main programs, converted to those of this package."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from absl import flags

from seed_rl.compat import imported_flags

CreateEnv = Callable[[int, Any], Any]


def environment_options(env_config: Any) -> Any:
    """The options that a program's environments get: FLAGS, if it passes none."""
    return flags.FLAGS if env_config is None and flags.FLAGS.is_parsed() else env_config


def with_typed_options(create_env_fn: CreateEnv, env_config: Any) -> tuple[CreateEnv, Any]:
    """A function that creates environments, and its options, as `create_job` takes them.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)`.
      env_config: any object, such as FLAGS; it reaches `create_env_fn` unchanged.

    Returns:
      (the function, a dataclass with the options that define the environment).
    """
    env_config = environment_options(env_config)
    if env_config is None or dataclasses.is_dataclass(env_config):
        return create_env_fn, env_config
    names = imported_flags.names_of_environments(env_config)
    typed = dataclasses.make_dataclass("Environment", names)(**names)
    return lambda env_id, _: create_env_fn(env_id, env_config), typed
