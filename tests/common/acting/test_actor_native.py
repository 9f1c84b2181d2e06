"""Actor processes against the native server."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from seed_rl.common.types import EnvOutput
from tests.helpers import PROGRAMS

tf = pytest.importorskip("tensorflow")

from seed_rl.common.inference.env_specs import env_output_specs  # noqa: E402
from seed_rl.grpc import ops  # noqa: E402
from seed_rl.testing import envs  # noqa: E402
from tests.helpers.waiting import PATIENCE_S, wait_until  # noqa: E402

PROGRAM = PROGRAMS / "actor_program.py"


class Learner:
    """The native server with a tf.function that records every call and answers by the step."""

    def __init__(self, address: str):
        self.calls: list[tuple[np.ndarray, ...]] = []
        self._changed = threading.Condition()

        def rows(spec: Any) -> Any:
            return tf.TensorSpec([None, *spec.shape], spec.dtype)

        specs = tf.nest.map_structure(rows, env_output_specs(envs.LifeStepEnv().observation_space))

        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.int32),
                tf.TensorSpec([None], tf.int64),
                specs,
                tf.TensorSpec([None], tf.float32),
            ]
        )
        def inference(env_ids: Any, run_ids: Any, env_outputs: EnvOutput, raw: Any) -> Any:
            tf.numpy_function(self._record, [env_ids, run_ids, *env_outputs, raw], [])
            return tf.cast(env_outputs.episode_step % 2, tf.int64)

        self._server = ops.Server([address])
        self._server.bind(inference)
        self._server.start()

    def _record(self, *call: np.ndarray) -> None:
        with self._changed:
            self.calls.append(tuple(np.copy(part) for part in call))
            self._changed.notify_all()

    def rows_of(self, env_id: int) -> list[tuple[Any, ...]]:
        """What environment `env_id` reported, in order."""
        with self._changed:
            calls = list(self.calls)
        return [
            tuple(part[i] for part in call[1:])
            for call in calls
            for i in np.flatnonzero(call[0] == env_id)
        ]

    def wait_for_rows(self, env_id: int, count: int) -> None:
        wait_until(lambda: len(self.rows_of(env_id)) >= count)

    def close(self) -> None:
        self._server.shutdown()


def start(repository: pathlib.Path, address: str, task: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        str(PROGRAM),
        "--env_name=seed_rl.testing.envs:LifeStep-v0",
        '--env_kwargs={"episode_length": 7, "truncate": true}',
        f"--server_address={address}",
        f"--task={task}",
        "--env_batch_size=2",
    ]
    return subprocess.Popen(
        command, cwd=repository, env={**os.environ, "PYTHONPATH": str(repository)}
    )


def check_life(rows: list[tuple[Any, ...]]) -> None:
    """Rows of one run id: one object's episodes from the first step on, none lost or doubled."""
    life = rows[0][3][0]
    episode = rows[0][3][1]
    step = 0
    for i, (_, reward, done, observation, abandoned, episode_step, raw) in enumerate(rows):
        assert observation[0] == life
        assert (observation[1], observation[2], episode_step) == (episode, step, step)
        begins = step == 0
        assert done == abandoned == (begins and i > 0)
        assert (reward, raw) == (step, 10 * step)
        assert observation[3] == (-1 if begins else (step - 1) % 2)  # The action it was given.
        episode, step = (episode + 1, 0) if step == 7 else (episode, step + 1)


def test_killed_actor_and_restarted_learner(repository: Any, socket_address: str) -> None:
    """Each life's steps are complete, in order and under a run id of their own."""
    learner = Learner(socket_address)
    actors = [start(repository, socket_address, task) for task in (0, 1)]
    try:
        for env_id in range(4):
            learner.wait_for_rows(env_id, 30)
        actors[0].kill()
        actors[0].wait()
        actors[0] = start(repository, socket_address, 0)
        before = len(learner.rows_of(0))
        learner.wait_for_rows(0, before + 30)
        first_rows = [learner.rows_of(env_id) for env_id in range(4)]
        learner.close()
        learner = Learner(socket_address)
        for env_id in range(4):
            learner.wait_for_rows(env_id, 30)
    finally:
        for actor in actors:
            actor.terminate()
        codes = [actor.wait(PATIENCE_S) for actor in actors]
        learner.close()
    assert codes == [0, 0]
    for env_id in range(4):
        lives: dict[int, list[Any]] = {}
        for row in first_rows[env_id] + learner.rows_of(env_id):
            lives.setdefault(int(row[0]), []).append(row)
        assert len(lives) == (3 if env_id < 2 else 2)
        for rows in lives.values():
            check_life(rows)
