"""An environment without an engine: frames of DeepMind Lab's size, and its nine actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

_EPISODE_STEPS = 900


class RandomFrames(gymnasium.Env[np.ndarray, Any]):
    """Noise of 72x96x3, which costs the actor little and the learner what a real frame costs."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 255, (72, 96, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(9)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._frame(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        return self._frame(), float(action == 0), self._step == _EPISODE_STEPS, False, {}

    def _frame(self) -> np.ndarray:
        return self.np_random.integers(0, 256, (72, 96, 3), np.uint8)
