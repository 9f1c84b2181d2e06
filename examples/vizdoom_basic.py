"""ViZDoom with V-trace and IMPALA's deep network.

.venv/bin/pip install vizdoom==1.3.2
./run_local.sh gym vtrace 2 8 --env=examples.vizdoom_basic:make --torso=impala_deep --lstm_size=256

Screens are taken down to every third pixel, [80, 107, 3], and actions are held for four frames.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.errors import UserError

EVERY = 3  # Pixels.


class Screen(gymnasium.ObservationWrapper[np.ndarray, Any, Any]):
    """Every third pixel of the screen, <uint8>[80, 107, 3], without ammunition and health."""

    def __init__(self, env: Any):
        super().__init__(env)
        height, width, channels = env.observation_space["screen"].shape
        shape = (-(-height // EVERY), -(-width // EVERY), channels)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)

    def observation(self, observation: Any) -> np.ndarray:
        return observation["screen"][::EVERY, ::EVERY]


def make(
    name: str = "VizdoomBasic-v1", frame_skip: int = 4, render_mode: str | None = None
) -> Screen:
    """The scenario of this name.

    Raises:
      UserError: ViZDoom is not installed.
    """
    try:
        from vizdoom import gymnasium_wrapper  # noqa: F401 - registers its scenarios.
    except ImportError as error:
        raise UserError(f"ViZDoom is missing: pip install vizdoom==1.3.2 ({error})") from None
    env = gymnasium.make(
        name, frame_skip=frame_skip, render_mode=render_mode, disable_env_checker=True
    )
    return Screen(env)
