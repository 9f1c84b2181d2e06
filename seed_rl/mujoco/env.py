"""Facade: names of the original; importing it defines the flags of the environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium

from seed_rl.compat import imported_flags
from seed_rl.mujoco import environment
from seed_rl.mujoco.environment import *  # noqa: F403

imported_flags.provide(environment.MujocoConfig)


def create_environment(
    env_name: str,
    discretization: str = environment.NONE,
    n_actions_per_dim: int = 11,
    action_ratio: float = 30.0,
    gym_kwargs: Mapping[str, Any] | None = None,
) -> gymnasium.Env[Any, Any]:
    """What `environment.create` returns, for programs that set the options themselves.

    Args:
      env_name: a registered id, module:id or module:callable.
      discretization: "none", "lin" or "log"; see `DiscretizeEnvWrapper`.
      n_actions_per_dim: with discretization, values per dimension; odd.
      action_ratio: for "log", the largest action divided by the smallest above 0.
      gym_kwargs: arguments of the environment.

    Raises:
      UserError: see `environment.create`.
    """
    config = environment.MujocoConfig(
        env_name=env_name,
        discretization=discretization,
        n_actions_per_dim=n_actions_per_dim,
        action_ratio=action_ratio,
    )
    return environment.make(config, gym_kwargs or {})
