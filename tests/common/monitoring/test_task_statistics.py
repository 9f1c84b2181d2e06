"""Returns and scores by task."""

from __future__ import annotations

from typing import Any

import numpy as np

from seed_rl.common.acting.environment_family import Tasks
from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.monitoring.metrics import EpisodeStatistics


class Worlds:
    """Environments 0 and 1 play "a", 2 plays "b", which has no score, 3 and 4 are "c"."""

    def task_of(self, env_id: int) -> str | None:
        return "aabcc"[env_id]

    def task_score(self, task: str, mean_return: float) -> float | None:
        return None if task == "b" else 10 * mean_return


def add(statistics: EpisodeStatistics, *rows: Any) -> None:
    """Adds (env id, return, raw return) rows."""
    ids, returns, raw = np.array(rows, np.float32).reshape(-1, 3).T
    lengths = np.full(len(ids), 5, np.int64)
    statistics.add(EpisodeStats(ids.astype(np.int32), lengths, returns, raw, lengths, raw))


def test_tasks_are_reported_separately() -> None:
    """Unshaped returns; scores over the recent episodes; the mean of scores over all tasks seen."""
    statistics = EpisodeStatistics(num_training_envs=4, num_eval_envs=1, tasks=Worlds())
    assert isinstance(Worlds(), Tasks)
    add(statistics, (0, 0.1, 1), (1, 0.1, 3), (2, 0.1, 7))
    first = statistics.harvest()
    assert {k: v for k, v in first.items() if "task" in k} == {
        "task_return/a": 2.0,
        "task_return/b": 7.0,
        "task_score/a": 20.0,
        "charts/task_score": 20.0,
    }
    add(statistics, (3, 0.1, 4), (3, 0.1, 6))
    second = statistics.harvest()
    assert {k: v for k, v in second.items() if "task" in k} == {
        "task_return/c": 5.0,
        "task_score/c": 50.0,
        "charts/task_score": 35.0,
    }
    assert statistics.harvest() == {}


def test_evaluation_is_apart() -> None:
    statistics = EpisodeStatistics(num_training_envs=4, num_eval_envs=1, tasks=Worlds())
    add(statistics, (3, 1, 1), (4, 2, 2))
    scalars = statistics.harvest()
    assert scalars["task_return/c"] == 1.0
    assert scalars["evaluation_task_return/c"] == 2.0
    assert scalars["charts/task_score"] == 10.0
    assert scalars["charts/evaluation_task_score"] == 20.0


def test_scores_are_of_the_recent_episodes() -> None:
    statistics = EpisodeStatistics(num_training_envs=4, num_eval_envs=1, window=2, tasks=Worlds())
    add(statistics, (0, 1, 1), (0, 2, 2), (1, 4, 4))
    scalars = statistics.harvest()
    assert scalars["task_score/a"] == 30.0
