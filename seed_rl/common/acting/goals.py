"""Environments with goals, in the form of Gymnasium-Robotics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.common.acting.env_adapters import as_gymnasium
from seed_rl.common.errors import UserError

OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"
GOAL_KEYS = (OBSERVATION, ACHIEVED, DESIRED)
"""Keys of their observations."""


def compute_reward(env: Any, space: spaces.Space[Any]) -> Callable[..., Any] | None:
    """`compute_reward(achieved_goal, desired_goal, info)` of an environment, if it has goals."""
    if not (isinstance(space, spaces.Dict) and set(GOAL_KEYS) <= set(space.spaces)):
        return None
    try:
        found: Callable[..., Any] = as_gymnasium(env).get_wrapper_attr("compute_reward")
        return found
    except AttributeError:
        return None


def reward_function(env: Any, space: spaces.Space[Any]) -> Callable[..., np.ndarray]:
    """`compute_reward(achieved_goal=, desired_goal=)` of an environment, for arrays of goals.

    Args:
      env: the environment, which the function uses.
      space: observation space.

    Raises:
      UserError: the environment has no goals, or no such function for arrays of goals.
    """
    compute = compute_reward(env, space)
    if compute is None:
        raise UserError(
            "--her_window_length needs an environment with goals: observations must be a dict of "
            f"{', '.join(GOAL_KEYS)}, and compute_reward(achieved_goal, desired_goal, info) must "
            f"take arrays of goals. Observations are {space}. For other environments, set "
            "--her_window_length=0."
        )
    assert isinstance(space, spaces.Dict)
    goal = np.zeros(space[DESIRED].shape or (), space[DESIRED].dtype)
    size = 1 + max(goal.shape, default=1)  # A number that differs from the size of a goal.
    batch = np.broadcast_to(goal, (size, *goal.shape))
    rewards(compute, batch, batch)
    return lambda achieved_goal, desired_goal: rewards(compute, achieved_goal, desired_goal)


def rewards(compute: Callable[..., Any], achieved: np.ndarray, desired: np.ndarray) -> np.ndarray:
    """Rewards [n] of actions that led to goals [n, ...].

    Raises:
      UserError: `compute` returns another shape.
    """
    result = np.asarray(compute(achieved, desired, {}))
    if result.shape != achieved.shape[:1]:
        raise UserError(
            f"compute_reward returned an array of shape {list(result.shape)} for arrays of "
            f"{len(achieved)} goals. It must return a reward for each, [{len(achieved)}]: reduce "
            "with axis=-1."
        )
    return result
