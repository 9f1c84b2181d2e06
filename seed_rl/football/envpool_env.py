"""A football game on EnvPool's build of the engine (no TensorFlow here)."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_extra

_PREFIX, _SUFFIX = "gfootball/", "-v1"
_NUM_SEEDS = 2**31
_FRAME_SHAPE = (72, 96, 4)
_NUM_ACTIONS = 19


def is_installed() -> bool:
    """Whether EnvPool is installed; does not import it, which takes a second."""
    return importlib.util.find_spec("envpool") is not None


def scenarios() -> tuple[str, ...]:
    """The scenarios that EnvPool has.

    Raises:
      UserError: EnvPool is not installed, or is a version without football.
    """
    names = [name for name in _envpool().list_all_envs() if name.startswith(_PREFIX)]
    return tuple(name.removeprefix(_PREFIX).removesuffix(_SUFFIX) for name in names)


class EnvpoolGame(gymnasium.Env[np.ndarray, Any]):
    """One game, a pool of one, with the observations of single steps."""

    metadata = {"render_fps": 10}

    def __init__(self, scenario: str):
        """Prepares the game; the first reset starts the engine.

        Args:
          scenario: one of `scenarios()`.

        Raises:
          UserError: see `scenarios`.
        """
        self._envpool = _envpool()
        self._task = f"{_PREFIX}{scenario}{_SUFFIX}"
        self._pool: Any = None
        self._actions = np.zeros(1, np.int32)
        self.observation_space = spaces.Box(0, 255, _FRAME_SHAPE, np.uint8)
        self.action_space = spaces.Discrete(_NUM_ACTIONS)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the next episode, <uint8>[72, 96, 4].

        Args:
          seed: begins a repeatable series of episodes. EnvPool takes seeds only when it starts an
            engine, so this starts one. None: the series continues, or a random one begins.
          options: unused.
        """
        del options
        if self._pool is None or seed is not None:
            if seed is None:  # EnvPool's default is the same for all games.
                seed = int.from_bytes(os.urandom(4), "little")
            self.close()
            self._pool = self._envpool.make_gymnasium(
                self._task, num_envs=1, num_threads=1, seed=seed % _NUM_SEEDS
            )
        observations, info = self._pool.reset()
        return observations[0], _first(info)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Plays one step; the scenario's time limit terminates the episode too."""
        self._actions[0] = action
        observations, rewards, terminated, truncated, info = self._pool.step(self._actions)
        reward = float(rewards[0])
        over = bool(terminated[0] or truncated[0])
        return observations[0], reward, over, False, {"score_reward": reward, **_first(info)}

    def close(self) -> None:
        """Stops the engine."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _first(info: dict[str, Any]) -> dict[str, Any]:
    """Values that tests compare with the other engine's."""
    return {"engine_seed": int(info["engine_seed"][0]), "score": info["score"][0].tolist()}


def _envpool() -> Any:
    try:
        import envpool
        import envpool.gfootball  # noqa: F401 - older versions do not have it.
    except ImportError as error:
        if sys.version_info < (3, 11):
            raise UserError(
                "EnvPool has football from Python 3.11 on. Use that, or --engine=gfootball."
            ) from error
        raise missing_extra("football", "Football", error) from error
    return envpool
