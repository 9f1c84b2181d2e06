"""Checks the rewards of an environment with goals (no TensorFlow here)."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.check_env.findings import Findings
from seed_rl.common.acting import goals
from seed_rl.common.errors import UserError

_STEPS = 200  # Compared one by one, and as a batch.
_COST = "Hindsight replay (--her_window_length) trains on a different task."


class GoalCheck:
    """Compares `compute_reward`, if the environment has goals, with the rewards of its steps."""

    def __init__(self, env: Any, space: spaces.Space[Any], findings: Findings, timeout_s: float):
        self._compute = goals.compute_reward(env, space)
        self._findings = findings
        self._timeout_s = timeout_s
        self._achieved: list[np.ndarray] = []
        self._desired: list[np.ndarray] = []

    def add(self, observation: Any, reward: float, info: dict[str, Any], call: str) -> None:
        """Compares the reward of a step, `call`, which led to an observation.

        Raises:
          Unusable: `compute_reward` failed.
        """
        if self._compute is None or len(self._achieved) == _STEPS:
            return
        achieved, desired = (np.array(observation[k]) for k in (goals.ACHIEVED, goals.DESIRED))
        self._achieved.append(achieved)
        self._desired.append(desired)
        with self._findings.of("compute_reward()", self._timeout_s):
            computed = np.asarray(self._compute(achieved, desired, info))
        if computed.size != 1 or not np.isclose(computed.item(), reward, rtol=1e-4, atol=1e-6):
            self._findings.must(
                "goal_reward",
                f"{call} returned the reward {reward:g}; compute_reward returns {computed} for its "
                "goals.",
                _COST,
                "Let step() return compute_reward(achieved_goal, desired_goal, info) of the "
                "observation that it returns; info may hold what does not depend on the goal.",
            )

    def check_batch(self) -> None:
        """Checks that arrays of goals get the same rewards as single goals.

        Raises:
          Unusable: `compute_reward` failed.
        """
        compute = self._compute
        if compute is None or not self._achieved:
            return
        with self._findings.of("compute_reward()", self._timeout_s):
            single = [
                float(np.ravel(compute(achieved, desired, {}))[0])
                for achieved, desired in zip(self._achieved, self._desired, strict=True)
            ]
            try:
                batch = goals.rewards(compute, np.stack(self._achieved), np.stack(self._desired))
            except UserError as error:
                what = str(error)
            else:
                if np.allclose(batch, single, rtol=1e-4, atol=1e-6):
                    return
                what = (
                    "compute_reward returns different rewards for arrays of goals and single goals."
                )
        self._findings.must(
            "goal_batch",
            what,
            _COST,
            "Let it take arrays of goals [n, ...], with an empty info, and return rewards [n].",
        )
