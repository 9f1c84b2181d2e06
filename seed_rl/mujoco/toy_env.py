"""Toy environments whose optimal returns are known.

Importing this module registers them with Gymnasium as Toy-v0, ToyMemory-v0 and BitFlipping-v0, and
by the names of their classes (ToyEnv, toy_env, ...), which existing programs use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_CELL = 32  # Pixels per side of a cell in pictures.


class ToyEnv(gymnasium.Env[np.ndarray, Any]):
    """Each step shows a random cue; the action that names it is rewarded with 1, others with 0.

    Observation <float32>[n_actions]: the cue, one-hot. An episode terminates after `horizon`
    steps.

    The optimal return is `horizon`; random actions have a mean return of horizon / n_actions.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 2}

    def __init__(self, horizon: int = 3, n_actions: int = 3, render_mode: str | None = None):
        """Creates an environment; `render` returns a picture whatever the `render_mode`."""
        self.render_mode = render_mode
        self._horizon = horizon
        self._n_actions = n_actions
        self._step = self._cue = 0
        self.observation_space = spaces.Box(0.0, 1.0, (n_actions,), np.float32)
        self.action_space = spaces.Discrete(n_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._next_cue(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == self._cue)
        self._step += 1
        return self._next_cue(), reward, self._step == self._horizon, False, {}

    def render(self) -> np.ndarray:
        """The observation as a row of cells, <uint8>[height, width, 3]."""
        return _picture([self._observation()])

    def _next_cue(self) -> np.ndarray:
        self._cue = int(self.np_random.integers(self._n_actions))
        return self._observation()

    def _observation(self) -> np.ndarray:
        return _one_hot(self._cue, self._n_actions)


class ToyMemoryEnv(ToyEnv):
    """A cue is shown at the first step only; the action at the last step must name it.

    Observation <float32>[n_actions + 1]: the one-hot cue at the first step; 1 in the last component
    at the step whose action counts; otherwise zero. The reward of that step is 1 for the right
    action and 0 for others; the other steps' is 0. An episode terminates after `horizon` steps.

    The optimal return is 1 with memory and 1 / n_actions on average without (if `horizon` is more
    than 1), the same as that of random actions.
    """

    def __init__(self, horizon: int = 3, n_actions: int = 3, render_mode: str | None = None):
        """Creates an environment; `render` returns a picture whatever the `render_mode`."""
        super().__init__(horizon, n_actions, render_mode)
        self.observation_space = spaces.Box(0.0, 1.0, (n_actions + 1,), np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over = self._step == self._horizon
        return self._observation(), float(over and int(action) == self._cue), over, False, {}

    def _observation(self) -> np.ndarray:
        observation = np.zeros(self._n_actions + 1, np.float32)
        if self._step == 0:
            observation[self._cue] = 1.0
        if self._step == self._horizon - 1:
            observation[-1] = 1.0
        return observation


class BitFlippingEnv(gymnasium.Env[dict[str, np.ndarray], Any]):
    """Bits must be flipped, one per step, until they equal a goal (Andrychowicz et al. 2017).

    Hindsight Experience Replay, arXiv 1707.01495, section 3.1: initial state and goal are uniformly
    random, action i flips bit i, and the reward is 0 if the bits then equal the goal and -1
    otherwise. With many bits, an agent without hindsight replay hardly ever sees a 0.

    Observation: a dict of <float32>[n_bits] of 0 and 1: `observation` and `achieved_goal`, both the
    bits, and `desired_goal`.

    An episode continues at the goal, and is truncated after `horizon` steps. So neither
    rewards nor ends depend on anything but bits and goal, and a transition whose goal is replaced
    in hindsight is one that the environment could have produced.

    `info["score_reward"]` is 1 when an episode reaches its goal for the first time: the score of an
    episode is 1 if it is solved and 0 otherwise. `info["is_success"]` says whether the bits equal
    the goal.

    The optimal score is 1, if `horizon` is at least `n_bits` and 2. As every action flips a bit,
    the best an agent can do at the goal is to return to it at every second step. The optimal return
    for d differing bits is -(d - 1) - ceil((horizon - d) / 2), for d = 0 it is -ceil(horizon / 2).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, n_bits: int = 10, horizon: int = 20, render_mode: str | None = None):
        """Creates an environment; `render` returns a picture whatever the `render_mode`."""
        self.render_mode = render_mode
        self._n_bits = n_bits
        self._horizon = horizon
        self._step = 0
        self._solved = False
        self._bits = self._goal = np.zeros(n_bits, np.float32)
        bits = spaces.Box(0.0, 1.0, (n_bits,), np.float32)
        self.observation_space: spaces.Space[Any] = spaces.Dict(
            {"observation": bits, "achieved_goal": bits, "desired_goal": bits}
        )
        self.action_space = spaces.Discrete(n_bits)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        self._solved = False
        self._bits, self._goal = self.np_random.integers(2, size=(2, self._n_bits)).astype(
            np.float32
        )
        return self._observation(), {}

    def step(self, action: int) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        self._step += 1
        self._bits[action] = 1.0 - self._bits[action]
        reward = float(self.compute_reward(self._bits, self._goal))
        success = reward == 0.0
        info = {"is_success": success, "score_reward": float(success and not self._solved)}
        self._solved |= success
        return self._observation(), reward, False, self._step == self._horizon, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any = None) -> np.ndarray:
        """The reward of reaching a state, for any goal.

        Args:
          achieved_goal: <float32>[..., n_bits], the bits after the action.
          desired_goal: <float32>[..., n_bits].
          info: unused; part of the interface of goal environments.

        Returns:
          <float32>[...]: 0 where all bits are equal, else -1.
        """
        del info
        equal = np.asarray(achieved_goal) == np.asarray(desired_goal)
        return np.all(equal, axis=-1).astype(np.float32) - np.float32(1.0)

    def render(self) -> np.ndarray:
        """The bits above the goal, as rows of cells, <uint8>[height, width, 3]."""
        return _picture([self._bits, self._goal])

    def _observation(self) -> dict[str, np.ndarray]:
        return {
            "observation": self._bits.copy(),
            "achieved_goal": self._bits.copy(),
            "desired_goal": self._goal.copy(),
        }


def _one_hot(index: int, size: int) -> np.ndarray:
    vector = np.zeros(size, np.float32)
    vector[index] = 1.0
    return vector


def _picture(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Rows of values in [0, 1] as gray cells: <uint8>[height, width, 3]."""
    gray = np.kron(np.stack(rows), np.full((_CELL, _CELL), 255.0)).astype(np.uint8)
    return np.repeat(gray[..., np.newaxis], 3, axis=-1)


for _class, _names in (
    (ToyEnv, ("Toy-v0", "ToyEnv", "toy_env")),
    (ToyMemoryEnv, ("ToyMemory-v0", "ToyMemoryEnv", "toy_memory_env")),
    (BitFlippingEnv, ("BitFlipping-v0", "BitFlippingEnv", "bit_flipping_env", "bit_flipping")),
):
    for _name in _names:
        gymnasium.register(id=_name, entry_point=_class)  # type: ignore[arg-type]
