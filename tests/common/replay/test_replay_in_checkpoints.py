"""The replay as a part of the run's checkpoints."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.checkpoints.checkpoints import CheckpointManager
from seed_rl.common.replay import FieldSpec, PrioritizedReplay, ReplayConfig, ReplayFiles
from tests.helpers.replays import stored


class Run:
    """A learner's checkpointed state: a variable and a replay."""

    def __init__(self, directory: Path):
        config = ReplayConfig(replay_buffer_size=40, replay_buffer_min_size=1, replay_ratio=0.0)
        self.replay = PrioritizedReplay(config, FieldSpec((7, 50), np.float32), seed=0)
        self.weights = tf.Variable(0.0)
        files = ReplayFiles(self.replay)
        self.manager = CheckpointManager(
            directory, {"agent": self.weights}, keep=2, extra={"replay": files}
        )

    def insert(self, first: int, count: int) -> None:
        numbers = np.arange(first, first + count, dtype=np.float32)
        self.replay.insert(np.broadcast_to(numbers[None, :, None], (7, count, 50)).copy())

    def numbers(self) -> list[float]:
        stats = self.replay.storage.stats()
        values, _ = stored(self.replay.storage, np.arange(stats.oldest_key, stats.next_key))
        return list(values[3, :, 9])


@pytest.mark.parametrize(
    ("fault", "message"), [("damaged", "damaged"), ("absent", "There is no replay in")]
)
def test_a_lost_replay_costs_neither_the_weights_nor_older_replays(
    fault: str, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Guards resumes after a damaged or full disk: the newest weights, the newest intact replay."""
    run = Run(tmp_path)
    run.insert(0, 5)
    run.manager.save(1)
    run.insert(5, 5)
    run.weights.assign(2.0)
    newest = run.manager.save(2)
    assert newest is not None
    if fault == "damaged":
        path = max((newest / "replay").glob("segment-*"))
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    else:
        shutil.rmtree(newest / "replay")
    resumed = Run(tmp_path)
    assert resumed.manager.restore_latest() == 2
    assert resumed.weights.numpy() == 2
    assert resumed.numbers() == [0, 1, 2, 3, 4]
    assert message in caplog.text
