"""Adapts environments with the old gym interface to Gymnasium."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.errors import UserError


def as_gymnasium(env: Any) -> gymnasium.Env[Any, Any]:
    """`env` itself if it is a Gymnasium environment, else an adapter around it.

    Raises:
      UserError: it lacks `reset`, `step` or a space, or is a vector environment.
    """
    if hasattr(env, "single_observation_space"):
        raise UserError(
            f"{type(env).__name__} is a vector environment. Give a function with a parameter "
            "num_envs that creates it, such as lambda num_envs: gymnasium.make_vec(ID, num_envs)."
        )
    needed = ("reset", "step", "observation_space", "action_space")
    if missing := [name for name in needed if not hasattr(env, name)]:
        raise UserError(
            f"{type(env).__name__} is not an environment: it has no {', '.join(missing)}. It must "
            "have the interface of gymnasium.Env (or of the old gym.Env)."
        )
    return env if isinstance(env, gymnasium.Env) else OldGymAdapter(env)


class OldGymAdapter(gymnasium.Env[Any, Any]):
    """An environment whose `reset` returns the observation and whose `step` returns four values.

    An episode counts as truncated if `info["TimeLimit.truncated"]` (from gym's time limit wrapper)
    or `info["abandoned"]` is true. Results that follow the new interface are returned unchanged.
    Other public attributes are the environment's own.
    """

    def __init__(self, env: Any):
        self.env = env
        self.observation_space = as_gymnasium_space(env.observation_space)
        self.action_space = as_gymnasium_space(env.action_space)
        self.metadata = dict(getattr(env, "metadata", None) or {})
        if (fps := self.metadata.get("video.frames_per_second")) is not None:
            self.metadata.setdefault("render_fps", fps)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":  # Not set yet while the adapter is unpickled.
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return getattr(self.env, name)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        given: dict[str, Any] = {} if options is None else {"options": options}
        if seed is not None and callable(getattr(self.env, "seed", None)):
            self.env.seed(seed)
        elif seed is not None:
            given["seed"] = seed
        result = self.env.reset(
            **{name: value for name, value in given.items() if takes(self.env.reset, name)}
        )
        if self._is_with_info(result):
            return result
        return result, {}

    def _is_with_info(self, result: Any) -> bool:
        """Whether `reset` returned (observation, info)."""
        pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)
        # An observation of a Tuple space may look the same.
        return pair and (
            not isinstance(self.observation_space, spaces.Tuple) or isinstance(result[0], tuple)
        )

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        if len(result) == 5:
            return result
        observation, reward, done, info = result
        truncated = bool(info.get("TimeLimit.truncated", False) or info.get("abandoned", False))
        return observation, reward, bool(done) and not truncated, bool(done) and truncated, info

    def render(self, mode: str = "rgb_array") -> Any:
        """A picture, or a window with `mode="human"`. The last gym sets it at creation."""
        render: Callable[..., Any] = getattr(self.env, "render", super().render)
        return render(mode=mode) if "mode" in parameters(render) else render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()


def parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function by name; {} if they are not known, as of much native code."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def takes(function: Callable[..., Any], argument: str) -> bool:
    """Whether a function is known to have a parameter of this name, or to take any."""
    known = parameters(function)
    return argument in known or any(p.kind == p.VAR_KEYWORD for p in known.values())


def as_gymnasium_space(space: Any) -> spaces.Space[Any]:
    """Converts a gym space to the Gymnasium space of the same name.

    Raises:
      UserError: Gymnasium has no such space.
    """
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Box":
        low, high = np.asarray(space.low, space.dtype), np.asarray(space.high, space.dtype)
        return spaces.Box(low, high, dtype=space.dtype)
    if kind == "Discrete":
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if kind == "MultiBinary":
        return spaces.MultiBinary(space.n)
    if kind == "Tuple":
        return spaces.Tuple([as_gymnasium_space(sub) for sub in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: as_gymnasium_space(sub) for key, sub in space.spaces.items()})
    raise UserError(f"Gymnasium has no equivalent of {space} ({type(space).__module__}).")
