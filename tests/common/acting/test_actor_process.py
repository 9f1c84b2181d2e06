"""Actors as real processes: signals, exit codes, and what they import."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.testing import envs
from seed_rl.testing.scripted_learner import ScriptedLearner
from tests.helpers import PROGRAMS
from tests.helpers.waiting import PATIENCE_S

PROGRAM = PROGRAMS / "actor_program.py"
LIFE_STEP = "seed_rl.testing.envs:LifeStep-v0"
FAULTY = "seed_rl.testing.envs:Faulty-v0"


class Learner(ScriptedLearner):
    """Answers 0, and reports when this many calls have arrived."""

    def __init__(self, calls: int = 20, **kwargs: Any):
        self.enough = threading.Event()
        self._left = calls
        space = envs.LifeStepEnv().observation_space
        super().__init__(space, spaces.Discrete(2), self._infer, **kwargs)

    def _infer(self, env_ids: np.ndarray, *_: Any) -> np.ndarray:
        self._left -= 1
        if self._left == 0:
            self.enough.set()
        return np.zeros(len(env_ids), np.int64)


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    output, errors = process.communicate(timeout=PATIENCE_S)
    return process.returncode, output, errors


@pytest.mark.parametrize(
    ("number", "flags", "expected"),
    [(signal.SIGTERM, ["--stopped_exit_code=75"], 75), (signal.SIGINT, [], 0)],
)
def test_stop_signal_ends_cleanly_without_tensorflow(
    number: int, flags: list[str], expected: int
) -> None:
    """Exit code 0 and no traceback, as a supervisor expects of a process it stopped; or the code of
    those to which 0 means finished, such as Kubernetes.

    Until then it is a batch process, or it would interrupt the learner whenever an action arrives.
    """
    with Learner() as learner:
        process = start(f"--env_name={LIFE_STEP}", f"--server_address={learner.address}", *flags)
        assert learner.enough.wait(PATIENCE_S)
        policy = os.sched_getscheduler(process.pid)
        process.send_signal(number)
        code, output, errors = end(process)
    assert code == expected, errors
    assert policy == os.SCHED_BATCH
    assert "Traceback" not in errors and "stopped" in errors
    assert "TensorFlow imported: False" in output


def test_stop_signal_while_there_is_no_learner(socket_address: str) -> None:
    process = start(f"--env_name={LIFE_STEP}", f"--server_address={socket_address}")
    assert process.stderr is not None
    assert "no learner" in process.stderr.readline()
    process.terminate()
    code, _, errors = end(process)
    assert code == 0 and "Traceback" not in errors


def test_stop_signal_while_the_learner_does_not_answer() -> None:
    """A frozen learner must not keep its actors alive."""
    release, asked = threading.Event(), threading.Event()

    def freeze(*_: Any) -> Any:
        asked.set()
        release.wait(PATIENCE_S)
        return np.zeros(1, np.int64)

    space = envs.LifeStepEnv().observation_space
    with ScriptedLearner(space, spaces.Discrete(2), freeze) as learner:
        process = start(f"--env_name={LIFE_STEP}", f"--server_address={learner.address}")
        assert asked.wait(PATIENCE_S)
        process.terminate()
        code, _, errors = end(process)
        release.set()
    assert code == 0 and "Traceback" not in errors


def test_stop_signal_while_an_environment_hangs() -> None:
    """Nothing waits for a simulator that does not return."""
    with Learner() as learner:
        process = start(
            f"--env_name={FAULTY}",
            '--env_kwargs={"fault": "hang", "at": 5}',
            f"--server_address={learner.address}",
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "hanging\n"
        process.terminate()
        code, _, errors = end(process)
    assert code == 0 and "does not return" in errors


def test_user_error_is_one_line() -> None:
    process = start("--env_name=NoSuchGame-v0")
    code, _, errors = end(process)
    assert code == 2
    assert errors.startswith("error: --env_name=NoSuchGame-v0") and errors.count("\n") == 1
