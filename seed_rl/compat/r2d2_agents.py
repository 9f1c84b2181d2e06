"""R2D2's networks as the original creates them: `create_agent(env_output_specs, num_actions)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces


def create_agent(env_output_specs: Any, num_actions: int) -> Any:
    """The network of `seed_rl.agents.r2d2.program.create_agent`.

    Args:
      env_output_specs: `EnvOutput` of `tf.TensorSpec`, without batch dimension.
      num_actions: actions are [0, num_actions).
    """
    from seed_rl.agents.r2d2 import program

    space = _space_of(env_output_specs.observation)
    return program.create_agent(spaces.Discrete(num_actions), space, None)


def with_spaces(create_agent_fn: Callable[[Any, int], Any]) -> Callable[..., Any]:
    """The original's `create_agent_fn` as an `algorithm.CreateAgent`."""
    from seed_rl.common.inference.env_specs import env_output_specs

    return lambda actions, observations, _: create_agent_fn(
        env_output_specs(observations), int(actions.n)
    )


def _space_of(specs: Any) -> Any:
    """The observation space with these specs, as far as encoders depend on it."""
    if isinstance(specs, Mapping):
        return spaces.Dict({key: _space_of(part) for key, part in specs.items()})
    if isinstance(specs, (tuple, list)):
        return spaces.Tuple([_space_of(part) for part in specs])
    dtype = specs.dtype.as_numpy_dtype
    if np.issubdtype(dtype, np.floating):
        return spaces.Box(-np.inf, np.inf, tuple(specs.shape), dtype)
    if dtype == np.bool_:
        return spaces.MultiBinary(specs.shape)
    limits = np.iinfo(dtype)
    return spaces.Box(limits.min, limits.max, tuple(specs.shape), dtype)
