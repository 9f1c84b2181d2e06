"""What a client must report: the rules of any environment, and the equations of CartPole."""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np

from seed_rl.common import nest
from seed_rl.common.acting import action_masks
from seed_rl.common.types import LARGEST

_LIMIT = 500  # Steps until CartPole-v1 truncates.
_START = 0.05  # Largest magnitude of a first observation.
_TOLERANCE = 1e-4


class Violation(Exception):
    """The client broke a rule; the message says which."""


class Row(NamedTuple):
    """What one environment reports in a call.

    The observation is a nest of arrays.
    """

    run_id: int
    reward: float
    done: bool
    observation: Any
    abandoned: bool
    episode_step: int
    raw_reward: float
    success: float = float("nan")


class Environment:
    """Checks what one environment of any kind reports.

    Attributes:
      lives: run ids seen.
      steps: steps since the last new life.
      ended: episodes that terminated.
      abandoned: episodes that were truncated.
    """

    def __init__(self, env_id: int):
        self.lives: list[int] = []
        self.steps = self.ended = self.abandoned = 0
        self.name = f"environment {env_id}"
        self._last: Row | None = None
        self._action: Any = None

    def report(self, row: Row, action: Any) -> None:
        """Checks a row, which will be answered with `action`.

        Raises:
          Violation: it does not follow from the last one.
        """
        last, self._last, action, self._action = self._last, row, self._action, action
        self._check_values(row)
        if last is None or row.run_id != last.run_id:
            if row.run_id in self.lives or row.run_id <= 0:
                raise Violation(f"{self.name}: run id {row.run_id} must be new and positive")
            self.lives.append(row.run_id)
            self.steps = 0
            self.expect("the first call of a life", row, self.first(row))
            return
        self.steps += 1
        self.follow(last, row, action)

    def first(self, row: Row) -> Row:
        """What the first row of an episode should be."""
        return Row(row.run_id, 0.0, False, row.observation, False, 0, 0.0)

    def follow(self, last: Row, row: Row, action: Any) -> None:
        """Checks a row that follows `last` in the same life."""
        del action  # Its effect is up to the environment.
        if row.abandoned:
            self.abandoned += 1
            if not row.done or row.reward != 0:
                raise Violation(
                    f"{self.name}: a truncation takes two calls: the last observation with its "
                    "reward and without done; then the next episode's first with done, abandoned "
                    "and reward 0 (docs/wire_actor.md, Episodes)"
                )
            expected = self.first(row)._replace(done=True, abandoned=True, success=row.success)
            self.expect("the call after the last step of a truncated episode", row, expected)
            # Not `last.done`: a part of a game may end with it.
            if last.episode_step == 0:
                raise Violation(
                    f"{self.name}: the last observation of a truncated episode was not reported "
                    "before, in a call without done"
                )
            if np.isnan(row.success) and not np.isnan(last.success):
                raise Violation(
                    f"{self.name}: the success of a truncated episode is read from its second "
                    "call, which lacks it"
                )
        elif row.done and row.episode_step == 0:
            self.ended += 1
        else:
            step = last.episode_step + 1
            expected = row._replace(episode_step=step)
            self.expect(f"step {step} of an episode", row, expected)

    def _check_values(self, row: Row) -> None:
        numbers = row.reward, row.raw_reward, *nest.flatten(row.observation)
        for number in numbers:
            if not (np.abs(np.asarray(number, np.float64)) <= LARGEST).all():
                raise Violation(
                    f"{self.name}: rewards and observations must be finite, at most {LARGEST:.0e}"
                )
        if not (np.isnan(row.success) or row.success in (0.0, 1.0)):
            raise Violation(f"{self.name}: success is {row.success:g}, not 1, 0 or NaN")
        if isinstance(row.observation, dict) and action_masks.KEY in row.observation:
            if not row.observation[action_masks.KEY].any():
                raise Violation(f"{self.name}: the mask allows no action")

    def expect(self, what: str, row: Row, expected: Row) -> None:
        """Raises `Violation` if a row differs."""
        for name, given, wanted in zip(Row._fields, row, expected, strict=True):
            if name == "success":  # See `follow`.
                continue
            for one, other in zip(nest.flatten(given), nest.flatten(wanted), strict=True):
                # NaN is not near anything.
                if not np.abs(np.subtract(one, other, dtype=np.float64)).max() <= _TOLERANCE:
                    raise Violation(
                        f"{self.name}: {name} of {what} is {_shown(one)}, not {_shown(other)}"
                    )


class CartPole(Environment):
    """CartPole-v1, whose equations it knows."""

    def __init__(self, env_id: int):
        super().__init__(env_id)
        self._simulator: Any = gymnasium.make("CartPole-v1").unwrapped

    def first(self, row: Row) -> Row:
        """See the base class: the observation may be any near zero."""
        near = np.clip(row.observation, -_START, _START)
        return super().first(row)._replace(observation=near)

    def follow(self, last: Row, row: Row, action: Any) -> None:
        """See the base class."""
        state, terminated = self._next(last.observation, action, row)
        if last.episode_step >= _LIMIT:
            self.abandoned += 1
            expected = self.first(row)._replace(done=True, abandoned=True)
            self.expect(f"the call after step {_LIMIT}, which truncates the episode", row, expected)
        elif terminated:
            self.ended += 1
            expected = self.first(row)._replace(reward=1.0, raw_reward=1.0, done=True)
            self.expect("the step that ends an episode", row, expected)
        else:
            step = last.episode_step + 1
            expected = Row(row.run_id, 1.0, False, state, False, step, 1.0)
            self.expect(f"step {step} of an episode, after action {action}", row, expected)

    def _next(self, observation: np.ndarray, action: int, row: Row) -> tuple[np.ndarray, bool]:
        """The observation after an action, and whether the episode ends there."""
        simulator = self._simulator
        simulator.state, simulator.steps_beyond_terminated = observation.astype(np.float64), None
        state, _, terminated, _, _ = simulator.step(action)
        limits = np.array([simulator.x_threshold, simulator.theta_threshold_radians])
        # So close to a limit, rounding decides.
        if (np.abs(np.abs(state[[0, 2]]) - limits) < _TOLERANCE).any():
            terminated = row.done
        return state, terminated


def _shown(value: Any) -> str:
    return str(np.round(value, 5).tolist() if isinstance(value, np.ndarray) else value)
