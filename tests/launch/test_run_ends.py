"""Messages and exit codes of runs that end or fail."""

from __future__ import annotations

import json
import pathlib
import shlex
import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest

from seed_rl import command
from seed_rl.common.errors import NotSavedError
from seed_rl.common.run_files import progress
from seed_rl.gym import from_python
from seed_rl.launch import panel
from seed_rl.launch.actor_record import SupervisedActor
from seed_rl.launch.process import Process
from seed_rl.launch.restarts import RestartPolicy
from seed_rl.launch.run_state import RunState
from tests import helpers
from tests.helpers import PROGRAMS, full_disk
from tests.helpers.run_helpers import going
from tests.helpers.waiting import wait_until


def test_finished_and_stopped_differ(start):
    """Guards job scripts that start a run again until it has finished."""
    run = going(start, 1)
    run.signal(signal.SIGTERM)
    assert run.wait() == 0
    assert progress.read(run.logdir).phase == "stopped"
    assert f"stopped; the same command resumes from {run.saved():,} frames" in run.text()
    run = start("end", "run", "1")
    assert run.wait() == 0
    assert progress.read(run.logdir).phase == "done"
    assert "training has ended: it is good enough. Next:" in run.text()
    # Once more, with more frames perhaps: what was done is not done any more.
    before, saved = run.text(), run.saved()
    run = start("importing", "run", "1")
    wait_until(lambda: "phase starting" in run.text()[len(before) :])
    run.signal(signal.SIGTERM)
    assert run.wait() == 0
    assert progress.read(run.logdir) is None
    assert run.text().rstrip().endswith(f"the same command resumes from {saved:,} frames")


def test_a_learner_stopped_by_others_has_not_finished(start):
    """Guards the messages when a job manager signals the learner before the supervisor."""
    run = going(start, 1)
    subprocess.run(["kill", "-TERM", str(run.learner())], check=True)
    assert run.wait() == 0
    assert "training has ended" not in run.text()
    assert "stopped; the same command resumes from " in run.text()


def test_nothing_is_promised_that_is_not_saved(start):
    """Guards Ctrl-C before there is a checkpoint, and a last checkpoint that fails."""
    run = start("slow_start", "run", "1")
    wait_until(lambda: (run.logdir / "progress.json").exists())
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    assert "stopped; nothing was saved, so the same command starts over" in run.text()

    run = going(start, 1, learner="unsaved")
    run.signal(signal.SIGINT)
    assert run.wait() == NotSavedError.exit_code
    assert "error: the last checkpoint could NOT be saved (newest: none)" in run.text()

    saved = going(start, 1)
    saved.signal(signal.SIGINT)
    assert saved.wait() == 0
    run = going(start, 1, learner="unsaved")
    run.signal(signal.SIGINT)
    assert run.wait() == NotSavedError.exit_code
    newest = f"newest: {saved.saved():,} frames"
    assert f"error: the last checkpoint could NOT be saved ({newest})" in run.text()


def test_term_again_does_not_hurry_the_learner(start):
    """Guards the checkpoint of a run whose every process is signalled, some of them twice."""
    run = going(start, 1, learner="quit_slowly=1")
    for _ in range(5):
        run.signal(signal.SIGTERM)
        time.sleep(0.1)
    assert run.wait() == 0
    assert run.saved()
    assert "stopped; the same command resumes" in run.text()


def test_a_resumed_run_says_where_it_resumes(start):
    """Guards against "frames 0" while the learner of an old run starts."""
    run = going(start, 1)
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    expected = f"frames resuming from {run.saved():,}"
    again = start("slow_start", "run", "1")
    wait_until(lambda: f"{expected} (" in again.text())
    again.signal(signal.SIGINT)
    assert again.wait() == 0
    # Before the learner has written anything, from the checkpoint alone.
    status = panel.Status(None, 0, 1, resumes_from=run.saved())
    assert ("frames", expected.removeprefix("frames ")) in panel.describe(status)


def test_a_silent_actor_is_named(start):
    """Guards a stopped actor, or a hung environment, among actors that all run."""
    run = start("silent=1", "run", "3")
    wait_until(lambda: "warning actor 1 silent for" in run.text())
    # The learner says 40 s, but this actor has not lived that long.
    assert "silent for 40 s" not in run.text()
    assert "actor 0 silent" not in run.text() and "actors 3/3" in run.text()
    run.signal(signal.SIGINT)
    assert run.wait() == 0


def test_an_actor_is_silent_when_all_its_environments_are(tmp_path):
    process = Process("actor 1", ["sleep", "100"], tmp_path / "log")
    process.start()
    try:
        actor = SupervisedActor(process, range(2, 4), RestartPolicy())
        assert actor.silence_s({0: 40.0, 2: 40.0}) == 0
        assert 0 < actor.silence_s({2: 40.0, 3: 50.0}) < 40
    finally:
        process.kill()
        wait_until(lambda: not process.running)
    assert actor.silence_s({2: 40.0, 3: 50.0}) == 0, "it is counted among the dead"


def test_an_actor_that_exits_with_0_has_failed(start):
    """Guards environments that end the program: reported, restarted with back-off, given up."""
    run = start("train", "exit_0", "2")
    assert run.wait() == 1
    text = run.text()
    assert "actor 0 exited with code 0 unexpectedly" in text
    assert "restarting it in 0.05 s" in text and "restarting it in 0.1 s" in text
    assert "every actor keeps crashing" in text


def test_a_failing_learner_is_shown_without_chatter(start):
    run = start("chatty", "run", "1")
    assert run.wait() == 1
    text = run.text()
    assert "RuntimeError: the loss is a string" in text
    assert "Serving inference." in text, "our own lines stay"
    log = (run.logdir / "logs" / "learner.log").read_text()
    for chatter in ("oneDNN", "cuInit", "InitializeLog", "cudart_stub", "AVX2"):
        assert chatter not in text and chatter in log


def test_a_full_disk_at_the_start_is_told_in_one_line(tmp_path):
    logdir = str(tmp_path / "run")
    (tmp_path / "run").mkdir()
    program = [sys.executable, PROGRAMS / "supervise.py", logdir, "train", "run", "1"]
    result = helpers.run(*full_disk.command(logdir, *program), code=2)
    assert f"Cannot write to {logdir}: No space left on device" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


def test_a_directory_with_room_has_no_problem(tmp_path: pathlib.Path) -> None:
    state = RunState(tmp_path)
    assert state.cannot_write() is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("fresh", "without"), [(False, ""), (True, " without --restart=fresh")])
def test_a_command_that_begins_anew_does_not_resume(tmp_path, fresh, without):
    (tmp_path / "checkpoints/ckpt-00001-step-000000000030").mkdir(parents=True)
    outlook = RunState(tmp_path, fresh).outlook()
    assert outlook == f"the same command{without} resumes from 30 frames"


def test_the_next_commands_exist(tmp_path):
    """Guards the end of a run, which says what to do next."""
    first, *commands = RunState(tmp_path).ending().splitlines()
    assert "training has ended" in first and len(commands) == 3
    for line in commands:
        module, *arguments = command.module_arguments(shlex.split(line)[1:])
        assert find_spec(module) and pathlib.Path(arguments[0]).samefile(tmp_path)


@pytest.mark.parametrize(("env", "trust"), [("CartPole-v1", 0), ("my_env:Maze", 2)])
def test_the_next_commands_work_as_printed(tmp_path, env, trust):
    """To play with code of one's own, they need --trust; plots run none."""
    record = {"program": "seed_rl.gym.ppo_main", "arguments": [f"--env_name={env}"]}
    (tmp_path / "config.json").write_text(json.dumps(record))
    evaluate, play, plot = RunState(tmp_path).ending().splitlines()[1:]
    assert (evaluate + play).count(" --trust") == trust and "--trust" not in plot


def test_no_command_plays_an_environment_of_the_program_that_trains(tmp_path):
    """Guards printed commands that cannot work: only that program can create it."""
    record = {"program": "seed_rl.gym.ppo_main", "env_name": from_python.NAME}
    (tmp_path / "config.json").write_text(json.dumps(record))
    [line] = RunState(tmp_path).ending().splitlines()[1:]
    assert " plot " in line
