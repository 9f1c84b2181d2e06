"""MiniGrid's memory task with R2D2: what was seen at the start decides the way at the end.

.venv/bin/pip install minigrid==3.2.0
./run_local.sh gym r2d2 2 8 --env=examples.minigrid_memory:make --unroll_length=40 --burn_in=20

The agent sees 7 x 7 cells as three numbers each: object, colour and state. They are choices, not
brightness, so they are passed as `MultiDiscrete`, which reaches the network one-hot. The recurrent
network (--lstm_size) keeps what the agent has seen.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.errors import UserError

CELL = (11, 6, 4)  # Objects, colours and states (of doors, or the agent's direction).


class Cells(gymnasium.ObservationWrapper[np.ndarray, Any, Any]):
    """The cells in view, <int64>[7, 7, 3], without the mission, which is always the same."""

    def __init__(self, env: Any):
        super().__init__(env)
        shape = env.observation_space["image"].shape
        self.observation_space = spaces.MultiDiscrete(np.broadcast_to(CELL, shape))

    def observation(self, observation: Any) -> np.ndarray:
        return observation["image"].astype(np.int64)


def make(name: str = "MiniGrid-MemoryS7-v0", render_mode: str | None = None) -> Cells:
    """The environment of this name.

    Raises:
      UserError: MiniGrid is not installed.
    """
    try:
        import minigrid
    except ImportError as error:
        raise UserError(f"MiniGrid is missing: pip install minigrid==3.2.0 ({error})") from None
    if name not in gymnasium.registry:
        minigrid.register_minigrid_envs()
    # Actions beyond moving (drop, toggle, done) have no effect here.
    return Cells(gymnasium.make(name, render_mode=render_mode, disable_env_checker=True))
