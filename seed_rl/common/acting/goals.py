"""Environments with goals, in the form of Gymnasium-Robotics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gymnasium import spaces

from seed_rl.common.acting.env_adapters import as_gymnasium
from seed_rl.common.errors import UserError

OBSERVATION, ACHIEVED, DESIRED = "observation", "achieved_goal", "desired_goal"
GOAL_KEYS = (OBSERVATION, ACHIEVED, DESIRED)
"""Keys of their observations."""


def reward_function(env: Any, space: spaces.Space[Any]) -> Callable[..., Any]:
    """`compute_reward(achieved_goal=, desired_goal=)` of an environment, for arrays of goals.

    Args:
      env: the environment, which the function uses.
      space: observation space.

    Raises:
      UserError: the environment has no goals, or no such function.
    """
    has_goals = isinstance(space, spaces.Dict) and set(GOAL_KEYS) <= set(space.spaces)
    try:
        compute_reward = as_gymnasium(env).get_wrapper_attr("compute_reward")
    except AttributeError:
        has_goals = False
    if not has_goals:
        raise UserError(
            "--her_window_length needs an environment with goals: observations must be a dict of "
            f"{', '.join(GOAL_KEYS)}, and compute_reward(achieved_goal, desired_goal, info) must "
            f"take arrays of goals. Observations are {space}. For other environments, set "
            "--her_window_length=0."
        )
    return lambda achieved_goal, desired_goal: compute_reward(achieved_goal, desired_goal, {})
