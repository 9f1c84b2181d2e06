"""An observation of several parts: a camera's image and a compass, each with its own encoder.

./run_local.sh examples/dict_observation.py vtrace 2 4

The image goes through convolutions, the compass through dense layers; their features are joined.
R2D2 and PPO take it, too (SAC takes no images); --torso and --mlp_sizes shape the layers.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.options import option
from seed_rl.gym import agents

SIDE = 40  # Pixels; images below 36 are treated as grids, for dense layers.


@dataclasses.dataclass(frozen=True)
class LighthouseConfig:
    """Lighthouse: the environment."""

    episode_length: int = option(20, "Steps of an episode.", minimum=1)


class Lighthouse(gymnasium.Env[dict[str, Any], Any]):
    """A light appears on the left or right; the compass says whether to go there or away."""

    def __init__(self, episode_length: int):
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (SIDE, SIDE, 1), np.uint8),
                "compass": spaces.Box(-1.0, 1.0, (2,), np.float32),
            }
        )
        self.action_space = spaces.Discrete(2)
        self._length = episode_length

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        reward = float((action == self._side) == self._towards)
        self._steps += 1
        return self._observation(), reward, False, self._steps >= self._length, {}

    def _observation(self) -> dict[str, Any]:
        self._side, self._towards = self.np_random.integers(2, size=2)
        image = np.zeros((SIDE, SIDE, 1), np.uint8)
        image[15:25, 5 + 20 * self._side : 15 + 20 * self._side] = 255
        compass = np.array([1.0, 0.0] if self._towards else [0.0, 1.0], np.float32)
        return {"image": image, "compass": compass}


def create_environment(task: int, config: LighthouseConfig) -> Lighthouse:
    """One environment; `task` is its id."""
    del task
    return Lighthouse(config.episode_length)


FAMILY = EnvironmentFamily(LighthouseConfig, create_environment)

if __name__ == "__main__":
    agents.main(FAMILY)
