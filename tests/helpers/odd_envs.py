"""A wrapper, and environments that no agent can learn: `--env_name=tests.helpers.odd_envs:NAME`."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class TextActions(gymnasium.Env[np.ndarray, str]):
    """Wants words."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space: Any = spaces.Text(5)

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 0.0, True, False, {}


class HugeRewards(TextActions):
    """Rewards whose square is no <float32>."""

    action_space = spaces.Discrete(2)

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1e30, True, False, {}


class FilmedWithoutTensorFlow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Renders where TensorFlow is not imported, or not at all."""

    def render(self) -> Any:
        if "tensorflow" in sys.modules:
            raise RuntimeError("TensorFlow is in this process")
        return self.env.render()
