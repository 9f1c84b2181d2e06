"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv 1707.01495)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from seed_rl.common import nest
from seed_rl.common.acting.goals import ACHIEVED, DESIRED
from seed_rl.common.replay.specs import FieldSpec


class Hindsight:
    """Cuts parts out of sampled windows and replaces their goals with what was achieved later.

    A part is `unroll_length` + 1 consecutive steps, at a random place of its window. With the given
    probability its goal is replaced with the goal achieved at a random later step of the same
    episode in the window (the strategy "future", section 4.5): that of the part's last step or of
    one after it. All steps of the episode that the part ends in get the same goal, so that a value
    never bootstraps from that of another goal. Steps of an earlier episode in the part keep their
    goals, and so does every action that ended an episode: what it achieved was not observed.

    The reward of an action whose goal was replaced changes by the difference between
    `compute_reward` for the new goal and for the old one. Thread-safe only if each thread has its
    own instance.
    """

    def __init__(
        self,
        compute_reward: Callable[..., Any],
        unroll_length: int,
        probability: float,
        seed: int | None = None,
    ):
        """Creates the random generator.

        Args:
          compute_reward: `compute_reward(achieved_goal=, desired_goal=)` returns rewards [n] of
            actions that led to achieved goals [n, ...].
          unroll_length: steps of a part, not counting the bootstrap step.
          probability: of replacing the goal of a part.
          seed: makes the results repeatable.
        """
        self._compute_reward = compute_reward
        self.unroll_length = unroll_length
        self._probability = probability
        self._rng = np.random.default_rng(seed)

    def part_specs(self, specs: Any) -> Any:
        """Specs of what a call returns, from those of the windows: nests of `FieldSpec`."""

        def cut(spec: FieldSpec) -> FieldSpec:
            shape = (self.unroll_length + 1, *spec.shape[1:])
            return dataclasses.replace(spec, shape=shape) if spec.time else spec

        return nest.map_structure(cut, specs)

    def __call__(self, windows: Any) -> Any:
        """Parts of windows, relabelled.

        Args:
          windows: named tuple with a field `env_outputs` whose observations have the keys of
            `goals.GOAL_KEYS`; nests of arrays [time, n, ...]. A field `agent_state` is returned as
            it is.

        Returns:
          The same with arrays [unroll_length + 1, n, ...].
        """
        done = windows.env_outputs.done
        num_steps, n = done.shape
        columns = np.arange(n)
        first = self._rng.integers(num_steps - self.unroll_length, size=n)
        rows = first + np.arange(self.unroll_length + 1)[:, np.newaxis]
        part = map_steps(lambda array: array[rows, columns], windows)

        episode = np.cumsum(done, axis=0)
        same = episode == episode[rows[-1], columns]
        last = num_steps - 1 - np.argmax(same[::-1], axis=0)
        later = self._rng.integers(rows[-1], last + 1)
        replaced = same[rows, columns] & (self._rng.random(n) < self._probability)
        replaced &= replaced[-2]  # Not only the first step of an episode: it has no action yet.
        new_goals = windows.env_outputs.observation[ACHIEVED][later, columns]
        env_outputs = self._relabelled(part.env_outputs, replaced, new_goals)
        return part._replace(env_outputs=env_outputs)

    def _relabelled(self, env_outputs: Any, replaced: np.ndarray, new_goals: np.ndarray) -> Any:
        """Replaces goals, in place.

        Args:
          env_outputs: of parts, [time, n, ...].
          replaced: <bool>[time, n], true for some last steps of each part.
          new_goals: [n, ...].
        """
        observation, reward = env_outputs.observation, env_outputs.reward
        goals = observation[DESIRED]
        acted = replaced[:-1]  # The last step's action is not in the part.
        old = goals[:-1][acted]
        goals[replaced] = np.broadcast_to(new_goals, goals.shape)[replaced]
        if acted.any():
            achieved, new = observation[ACHIEVED][1:][acted], goals[:-1][acted]
            after, before = (  # Differences of bools and bytes are not rewards.
                np.asarray(
                    self._compute_reward(achieved_goal=achieved, desired_goal=goal), reward.dtype
                )
                for goal in (new, old)
            )
            reward[1:][acted] += after - before
        return env_outputs


def map_steps(fn: Callable[[Any], Any], unrolls: Any) -> Any:
    """Applies `fn` to all leaves of a named tuple but those of its field `agent_state`, if any."""
    state = {"agent_state": unrolls.agent_state} if "agent_state" in unrolls._fields else {}
    steps = unrolls._replace(**dict.fromkeys(state, ()))
    return nest.map_structure(fn, steps)._replace(**state)
