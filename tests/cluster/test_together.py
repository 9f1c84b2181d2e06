"""Several learners as one job: they end together, and start again together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seed_rl.cluster.together import Together
from seed_rl.launch.restarts import FOLLOW_S, RestartPolicy
from tests.helpers.clock import Clock
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import wait_until

# A learner: does what the file of its index says, once, and then ends with 0.
LEARNER = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
index = os.environ["SEED_RL_INDEX"]
with (folder / "starts").open("a") as log:
    log.write(f"{index} {os.environ['SEED_RL_START']} {sys.argv[2]}\\n")
deed = folder / index
if deed.exists():
    what = deed.read_text()
    deed.unlink()
    if what == "hang":
        time.sleep(1000)
    if what == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.exit(int(what))
"""


@pytest.fixture
def together(tmp_path):
    """Starts the program with two learners; `deeds`: of each, the first time."""
    started = []
    (tmp_path / "learner.py").write_text(LEARNER)

    def start(*deeds, stopped="75"):
        for index, deed in enumerate(deeds):
            (tmp_path / str(index)).write_text(deed)
        arguments = (sys.executable, str(tmp_path / "learner.py"), str(tmp_path), "at-{}")
        program = ("--", "x{}", f"--stopped_exit_code={stopped}")
        started.append(Program("seed_rl.cluster.together", "2", *arguments, *program))
        return started[-1]

    yield start
    for program in started:
        program.kill()


def starts(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "starts").read_text().splitlines()]


def test_an_exit_code_that_is_no_number_is_left_to_the_learners(together):
    program = together("2", "2", stopped="x")
    assert program.wait() == 2
    assert "Traceback" not in program.text()


def test_after_a_crash_all_start_again_and_end(together, tmp_path):
    """Each start has a name of its own, by which learners know the addresses that count."""
    program = together("6", "killed")
    assert program.wait() == 0, program.text()
    first, second = {n for i, n, _ in starts(tmp_path)[:2]}, {n for i, n, _ in starts(tmp_path)[2:]}
    assert len(first) == len(second) == 1 and first != second
    assert sorted((i, place) for i, _, place in starts(tmp_path)[2:]) == [
        ("0", "at-0"),
        ("1", "at-1"),
    ]
    assert "learner 1 exited with code 137" in program.text()
    assert "starting all learners again from the last checkpoint" in program.text()


@pytest.mark.parametrize(
    ("deeds", "code"), [(("75", "75"), 75), (("6", "2"), 2), (("5", "6"), 5), (("0", "0"), 0)]
)
def test_ends_after_which_a_start_does_not_help(together, tmp_path, deeds, code):
    program = together(*deeds)
    assert program.wait() == code, program.text()
    assert len(starts(tmp_path)) == 2


def test_nothing_starts_again_after_a_signal(together, tmp_path):
    """The learners get it from the engine."""
    program = together("hang", "hang")
    wait_until(lambda: (tmp_path / "starts").exists() and len(starts(tmp_path)) == 2)
    program.send(signal.SIGTERM)
    wait_until(lambda: not (tmp_path / "0").exists() and not (tmp_path / "1").exists())
    assert program.code is None
    for pid in Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)
    assert program.wait() == 137, program.text()
    assert len(starts(tmp_path)) == 2


class Hung(subprocess.Popen):
    """A process that ends only when it is killed."""

    ends: list[str] = []  # noqa: RUF012  # How, and when.
    clock: Clock

    def terminate(self):
        self.ends.append(f"terminate at {self.clock.now:.0f}")

    def kill(self):
        self.ends.append(f"kill at {self.clock.now:.0f}")
        super().kill()
        self.wait()


def test_a_hung_learner_is_ended(monkeypatch):
    """Guards the others from waiting for one that does not notice that they are gone."""
    clock = Hung.clock = Clock()
    monkeypatch.setattr(Hung, "ends", [])
    monkeypatch.setattr("seed_rl.cluster.together.is_final", lambda code: code == 137)

    def start(index, name):
        if index:
            return Hung(["sleep", "1000"])
        failed = subprocess.Popen(["sh", "-c", "exit 6"])
        failed.wait()
        return failed

    assert Together(start, 2, 75, clock, clock.sleep).run() == 137
    assert Hung.ends[0] == f"terminate at {FOLLOW_S:.0f}"
    assert Hung.ends[-1] == f"kill at {FOLLOW_S + 10:.0f}"


class Lives(subprocess.Popen):
    """A process that ends with a code after some time of the clock, or when it is told to."""

    def __init__(self, clock, lifetime_s, code):
        super().__init__(["sh", "-c", f"exit {code}"])
        self.wait()
        self.clock, self.end_s = clock, clock.now + lifetime_s

    def poll(self):
        return super().poll() if self.clock.now >= self.end_s else None

    def terminate(self):
        self.end_s = self.clock.now


def test_failures_after_days_of_training_do_not_add_up():
    clock, started = Clock(), []

    def start(index, name):
        started.append(name)
        return Lives(clock, 86400, 6 if len(started) < 20 else 0)

    assert Together(start, 1, 75, clock, lambda _: clock.sleep(600)).run() == 0
    assert len(started) == 20


@pytest.mark.parametrize(("lifetime_s", "code"), [(0, 1), (45, 1), (300, 6)])
def test_learners_that_keep_failing_are_given_up(lifetime_s, code):
    """Also where the others take long to notice, or the failure is that one waits for another."""
    clock, started = Clock(), []

    def start(index, name):
        started.append(name)
        return Lives(clock, 1e9 if index else lifetime_s, code)

    assert Together(start, 3, 75, clock, clock.sleep).run() == code
    assert len(started) == 3 * RestartPolicy().most_failures
