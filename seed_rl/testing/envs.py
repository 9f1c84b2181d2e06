"""Small deterministic environments that expose or provoke what the system must handle.

Importing this module registers them with Gymnasium for use by programs, e.g.
`--env_name=seed_rl.testing.envs:LifeStep-v0`.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_lives = itertools.count()


class LifeStepEnv(gymnasium.Env[np.ndarray, Any]):
    """Observations identify their life, episode and step, so that mixed-up unrolls are detected.

    Observation <float32>[4]: life (unique per object and process), episode (from 0), step in the
    episode, and the previous action (-1 at the first step). The reward is the step's number in the
    episode.
    """

    def __init__(self, episode_length: int = 10, truncate: bool = False, num_actions: int = 2):
        """Episodes terminate, or are truncated if `truncate`, after `episode_length` steps."""
        # Exact in float32: 2^14 process ids times 2^9 objects.
        self.life = (os.getpid() % 2**14) * 2**9 + next(_lives) % 2**9
        self._length = episode_length
        self._truncate = truncate
        self._episode = -1
        self._step = 0
        self.observation_space = spaces.Box(-1.0, np.inf, (4,), np.float32)
        self.action_space = spaces.Discrete(num_actions)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode += 1
        self._step = 0
        return self._observation(-1), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        over = self._step >= self._length
        info = {"score_reward": 10.0 * self._step}
        return (
            self._observation(action),
            float(self._step),
            over and not self._truncate,
            over and self._truncate,
            info,
        )

    def _observation(self, action: int) -> np.ndarray:
        return np.array([self.life, self._episode, self._step, action], np.float32)


class FaultyEnv(LifeStepEnv):
    """A `LifeStepEnv` in which something goes wrong."""

    FAULTS = (
        *("raise", "raise_in_reset", "hang", "exit", "sys_exit", "shape", "dtype", "slow_start"),
        *("nan_observation", "no_reward", ""),
    )

    def __init__(self, fault: str, at: int = 5, seconds: float = 3600.0, episode_length: int = 10):
        """Creates an environment with one fault.

        Args:
          fault: "raise" (in step); "raise_in_reset"; "hang" (step prints "hanging" and sleeps for
            `seconds`); "exit" (of the process, code 77); "sys_exit" (code 0); "shape" or "dtype"
            (wrong in the observation); "nan_observation" (from step `at` on);
            "no_reward" (None as reward); "slow_start" (the constructor takes `seconds`); "": none.
          at: number of the faulty step (counted over all episodes) or reset, from 1.
          seconds: duration of "hang" or "slow_start".
          episode_length: steps after which an episode terminates.
        """
        if fault not in self.FAULTS:
            raise ValueError(f"fault must be one of {self.FAULTS}, not {fault!r}.")
        super().__init__(episode_length)
        self._fault = fault
        self._at = at
        self._seconds = seconds
        self._steps_taken = 0
        self._resets = 0
        if fault == "slow_start":
            time.sleep(seconds)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._resets += 1
        if self._fault == "raise_in_reset" and self._resets == self._at:
            raise RuntimeError("the level could not be loaded")
        return super().reset(seed=seed, options=options)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps_taken += 1
        observation, reward, terminated, truncated, info = super().step(action)
        if self._steps_taken == self._at:
            if self._fault == "raise":
                raise RuntimeError("the simulator crashed")
            if self._fault == "hang":
                print("hanging", flush=True)
                time.sleep(self._seconds)
            if self._fault == "exit":
                os._exit(77)
            if self._fault == "sys_exit":
                sys.exit(0)
            if self._fault == "shape":
                observation = observation[:-1]
            if self._fault == "dtype":
                observation = observation.astype(np.complex64)
            if self._fault == "no_reward":
                reward = None  # type: ignore[assignment]
        if self._steps_taken >= self._at and self._fault == "nan_observation":
            observation = np.full_like(observation, np.nan)
        return observation, reward, terminated, truncated, info


class TimeLimitEnv(gymnasium.Env[np.ndarray, Any]):
    """A walk along a line, usually truncated by a time limit.

    Observation <float32>[1]: position / 10. Action 1 moves right, 0 stays; position 10 terminates.
    The reward is 1 per step, so the value of a state far from the end is that of an endless
    episode: a learner that treats truncation as termination underestimates it.
    """

    def __init__(self, limit: int = 5):
        """Truncates episodes after `limit` steps."""
        self._limit = limit
        self.observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self._step = 0
        return self._observation(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._step += 1
        self._position += int(action)
        terminated = self._position >= 10
        return self._observation(), 1.0, terminated, self._step >= self._limit, {}

    def _observation(self) -> np.ndarray:
        return np.array([self._position / 10], np.float32)


class DictEnv(gymnasium.Env[Any, Any]):
    """Nested observations and actions of every kind.

    The reward is the number of correct parts of the action: `move` equals the observed goal,
    `force` is positive. Episodes last 5 steps.
    """

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (8, 8, 3), np.uint8),
                "goal": spaces.Discrete(3),
                "body": spaces.Tuple(
                    [spaces.Box(-1.0, 1.0, (2,), np.float64), spaces.MultiBinary(3)]
                ),
            }
        )
        self.action_space = spaces.Dict(
            {"move": spaces.Discrete(3), "force": spaces.Box(-2.0, 4.0, (2,), np.float32)}
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._step = 0
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action["move"] == self._goal) + float(np.all(action["force"] > 0))
        self._step += 1
        return self._observation(), reward, self._step == 5, False, {}

    def _observation(self) -> Any:
        self._goal = int(self.np_random.integers(3))
        return {
            "image": np.full((8, 8, 3), self._step, np.uint8),
            "goal": self._goal,
            "body": (
                self.np_random.uniform(-1.0, 1.0, 2),
                self.np_random.integers(2, size=3, dtype=np.int8),
            ),
        }


class MaskedEnv(gymnasium.Env[Any, Any]):
    """Allows different actions at each step, and raises if it gets a forbidden one.

    The reward is 1 for the lowest action allowed, which the observation <float32>[1], the step's
    number, does not reveal. An episode of ten steps terminates or is truncated, and is a success
    (`info["is_success"]`) if its return is above 5.
    """

    def __init__(self, place: str = "info", choices: tuple[int, ...] = (5,)):
        """Has its mask in the "info" or the "observation"; more than one of `choices` make actions
        `MultiDiscrete`, whose mask is a tuple in the info.
        """
        self._place, self._choices = place, choices
        self.observation_space: Any = spaces.Box(0.0, 10.0, (1,), np.float32)
        self.action_space: Any = spaces.Discrete(choices[0])
        if len(choices) > 1:
            self.action_space = spaces.MultiDiscrete(list(choices))
        if place == "observation":
            mask = spaces.MultiBinary(sum(choices))
            self.observation_space = spaces.Dict(
                {"observation": self.observation_space, "action_mask": mask}
            )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._truncates = bool(self.np_random.integers(2))
        self._step, self._return = 0, 0.0
        return self._report({})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for choice, mask in zip(np.reshape(action, -1), self._masks, strict=True):
            if not mask[choice]:
                raise ValueError(f"Choice {choice} is forbidden by {mask}.")
        best = [int(np.argmax(mask)) for mask in self._masks]
        reward = float(np.reshape(action, -1).tolist() == best)
        self._step, self._return = self._step + 1, self._return + reward
        over, limit = self._step == 10, self._truncates
        observation, info = self._report({"is_success": self._return > 5} if over else {})
        return observation, reward, over and not limit, over and limit, info

    def _report(self, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._masks = [self.np_random.integers(2, size=n, dtype=np.int8) for n in self._choices]
        for mask in self._masks:
            mask[self.np_random.integers(len(mask))] = 1
        observation: Any = np.array([self._step], np.float32)
        if self._place == "observation":
            return {"observation": observation, "action_mask": np.concatenate(self._masks)}, info
        masks = tuple(self._masks)
        return observation, {**info, "action_mask": masks if len(masks) > 1 else masks[0]}


class OldGymEnv:
    """A `LifeStepEnv` with the API of gym before 0.26: `step` returns four values.

    The last info of a truncated episode has `TimeLimit.truncated`.
    """

    def __init__(self, episode_length: int = 10, truncate: bool = False):
        self._env = LifeStepEnv(episode_length, truncate)
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self.seeds: list[int] = []

    def seed(self, seed: int) -> None:
        self.seeds.append(seed)

    def reset(self) -> np.ndarray:
        return self._env.reset()[0]

    def step(self, action: int) -> tuple[np.ndarray, float, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self._env.step(action)
        if truncated:
            info["TimeLimit.truncated"] = True
        return observation, reward, terminated or truncated, info


for _name, _class in {
    "LifeStep-v0": LifeStepEnv,
    "Faulty-v0": FaultyEnv,
    "TimeLimit-v0": TimeLimitEnv,
    "Dict-v0": DictEnv,
    "Masked-v0": MaskedEnv,
}.items():
    gymnasium.register(id=_name, entry_point=_class)  # type: ignore[arg-type]
