"""A football game on Google Research Football's own package (no TensorFlow here)."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import python_for_shell

_NUM_SEEDS = 2_000_000_000  # gfootball's own range.


def is_installed() -> bool:
    """Whether gfootball is installed; does not import it."""
    return importlib.util.find_spec("gfootball") is not None


def scenarios(purpose: str = "Football") -> tuple[str, ...]:
    """The scenarios that gfootball has, including those added to its folder.

    Args:
      purpose: what needs gfootball, as the subject of a sentence.

    Raises:
      UserError: gfootball is not installed.
    """
    try:
        from gfootball.env import scenario_builder
    except ImportError as error:
        raise UserError(
            f"{purpose} needs the engine gfootball ({error}). Build and install it with "
            f"scripts/build_gfootball.sh {python_for_shell()} (about five minutes; see "
            "docs/environments/football.md)."
        ) from error
    return tuple(scenario_builder.all_scenarios())


class GfootballGame(gymnasium.Env[np.ndarray, Any]):
    """One game, with the observations of single steps."""

    metadata = {"render_fps": 10}

    def __init__(self, scenario: str, rewards: str, size: tuple[int, int]):
        """Starts the engine.

        Args:
          scenario: one of `scenarios()`.
          rewards: "scoring" or "scoring,checkpoints".
          size: height and width of the minimap.
        """
        import gym
        from gfootball import env as football

        logging.getLogger("absl").addFilter(_is_no_episode_log)
        gym.logger.set_level(gym.logger.ERROR)  # Each wrapper warns about its old interface.
        height, width = size
        self._game = football.create_environment(
            env_name=scenario,
            representation="extracted",
            rewards=rewards,
            channel_dimensions=(width, height),
        )
        self.observation_space = spaces.Box(0, 255, (height, width, 4), np.uint8)
        self.action_space = spaces.Discrete(int(self._game.action_space.n))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts the next episode, <uint8>[height, width, 4].

        Args:
          seed: begins a repeatable series of episodes.
          options: `{"engine_seed": n}` starts the episode that the engine makes of n.
        """
        super().reset(seed=seed)
        chosen = (options or {}).get("engine_seed")
        engine_seed = int(self.np_random.integers(_NUM_SEEDS) if chosen is None else chosen)
        config = self._game.unwrapped._config
        # gfootball derives the second value from the first seed of its life and keeps it.
        config["game_engine_random_seed"] = engine_seed
        config["reverse_team_processing"] = bool(engine_seed % 2)
        if seed is not None:
            config["episode_number"] = 1  # As in a new game: the sides take turns to kick off.
        return self._game.reset(), {"engine_seed": engine_seed}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Plays one step; the scenario's time limit terminates the episode too."""
        observation, reward, done, info = self._game.step(int(action))
        return observation, float(reward), bool(done), False, info

    def close(self) -> None:
        """Keeps the engine for the next game of this process."""
        self._game.close()


def _is_no_episode_log(record: logging.LogRecord) -> bool:
    """False for gfootball's line per episode: that may last less than a tenth of a second."""
    return not (record.filename == "football_env_core.py" and record.levelno == logging.INFO)
