"""Runs whose environments play different tasks."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Tasks(Protocol):
    """Which task each environment plays, and how tasks are scored.

    If the options of the environments (`EnvironmentFamily.config`) have these methods, the learner
    reports each task separately.
    """

    def task_of(self, env_id: int) -> str | None:
        """The task of an environment, for display; None if the run has only one."""

    def task_score(self, task: str, mean_return: float) -> float | None:
        """Score in percent that makes tasks comparable; None if there is no such scale.

        Args:
          task: result of `task_of`.
          mean_return: mean unshaped return of episodes of the task.
        """
