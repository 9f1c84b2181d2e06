"""An environment with the interface of gym before 0.26: nothing to change in it.

./run_local.sh gym vtrace 2 4 --env=examples.old_gym:Balance

`reset` returns the observation alone, `step` four values, `seed` is a method. At its time limit, an
old environment sets info["TimeLimit.truncated"] = True, as gym's own wrapper did; otherwise agents
learn that there is no reward after the limit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces  # Those of gym work, too.


class Balance:
    """Keep a drifting point near 0."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, time_limit: int = 100):
        self._time_limit = time_limit
        self._random = np.random.default_rng()

    def seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def reset(self) -> np.ndarray:
        self._steps = 0
        self._state = self._random.uniform(-0.1, 0.1, 2)
        return self._state.astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        self._steps += 1
        position, speed = self._state
        speed += 0.05 * (action - 1) + 0.05 * position
        self._state = np.array([position + speed, speed])
        lost = abs(self._state[0]) > 1
        late = self._steps >= self._time_limit
        info = {"TimeLimit.truncated": late and not lost}
        return self._state.astype(np.float32), 1.0, bool(lost or late), info
