"""Observations and actions of whole batches, converted between environment and agent.

What `AgentObservations` and `AgentActions` do for one environment, without a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.common.acting import env_wrappers


def observation_converter(space: spaces.Space[Any]) -> Callable[[Any], Any]:
    """A function that converts observations of `space`, a nest of [k, ...], to those agents take.

    The results are of `env_wrappers.agent_observation_space(space)`.
    """
    if isinstance(space, spaces.Dict):
        by_key = {key: observation_converter(sub) for key, sub in space.spaces.items()}
        return lambda value: {key: convert(value[key]) for key, convert in by_key.items()}
    if isinstance(space, spaces.Tuple):
        parts = [observation_converter(sub) for sub in space.spaces]
        return lambda value: tuple(part(v) for part, v in zip(parts, value, strict=True))
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)):
        start = space.start
        sizes = np.asarray([space.n] if isinstance(space, spaces.Discrete) else space.nvec)
        return lambda value: _one_hots(np.asarray(value) - start, sizes.reshape(-1))
    if env_wrappers.is_channels_first(space):
        return lambda value: np.ascontiguousarray(np.moveaxis(value, 1, -1))
    if space.dtype != np.uint8:
        return lambda value: np.asarray(value, np.float32)
    return np.asarray


def action_converter(space: spaces.Space[Any]) -> Callable[[Any], Any]:
    """A function that converts actions of agents, a nest of [k, ...], to those of `space`."""
    if isinstance(space, spaces.Dict):
        by_key = {key: action_converter(sub) for key, sub in space.spaces.items()}
        return lambda action: {key: convert(action[key]) for key, convert in by_key.items()}
    if isinstance(space, spaces.Tuple):
        parts = [action_converter(sub) for sub in space.spaces]
        return lambda action: tuple(part(a) for part, a in zip(parts, action, strict=True))
    if env_wrappers.is_bounded(space):
        assert isinstance(space, spaces.Box)
        box = space  # For the type checker.
        return lambda action: env_wrappers.from_unit(box, np.reshape(action, (-1, *box.shape)))
    if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        return lambda action: np.reshape(action, (-1, *space.shape))
    return lambda action: action


def _one_hots(choices: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """<float32>[k, sum of sizes] for <int>[k, ...]."""
    rows = choices.reshape(len(choices), -1)
    vectors = np.zeros((len(rows), int(sizes.sum())), np.float32)
    np.put_along_axis(vectors, np.cumsum(sizes) - sizes + rows, 1.0, axis=1)
    return vectors
