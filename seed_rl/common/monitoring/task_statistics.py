"""Statistics of finished episodes by task."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np

from seed_rl.common.acting.environment_family import Tasks
from seed_rl.common.run_files.returns_log import EpisodeRow


class TaskStatistics:
    """Returns and scores of each task, and the mean score of all.

    Args:
      tasks: of the run's environments.
      evaluation: whether the episodes are those of evaluation environments.
      window: episodes of a task whose mean return is scored.
    """

    def __init__(self, tasks: Tasks, evaluation: bool, window: int):
        self._tasks = tasks
        self._of = "evaluation_" if evaluation else ""
        self._recent: dict[str, collections.deque[float]] = collections.defaultdict(
            lambda: collections.deque(maxlen=window)
        )

    def harvest(self, rows: Sequence[EpisodeRow]) -> dict[str, float]:
        """Returns scalars for TensorBoard.

        Args:
          rows: the episodes finished since the last call.

        Returns:
          For each task with new episodes: their mean return, and the score of the recent ones. If
          there are scores, also their mean over all tasks that have finished an episode.
        """
        new: dict[str, list[float]] = collections.defaultdict(list)
        for row in rows:
            if (task := self._tasks.task_of(row.env_id)) is not None:
                new[task].append(row.raw_return)
                self._recent[task].append(row.raw_return)
        scalars = {f"{self._of}task_return/{t}": float(np.mean(r)) for t, r in new.items()}
        scores = {t: self._tasks.task_score(t, float(np.mean(r))) for t, r in self._recent.items()}
        known = {task: score for task, score in scores.items() if score is not None}
        scalars |= {f"{self._of}task_score/{t}": s for t, s in known.items() if t in new}
        if known and new:
            scalars[f"charts/{self._of}task_score"] = float(np.mean(list(known.values())))
        return scalars
