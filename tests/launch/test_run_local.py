"""run_local.sh with the real learner, actors and TensorBoard, from the command line to the end."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import urllib.request

import pytest

from tests import helpers
from tests.helpers.local_runs import command_lines
from tests.helpers.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TASK = ["gym", "vtrace", "2", "2", "--env_name=CartPole-v1"]


def command(repository: pathlib.Path, logdir: pathlib.Path, *flags: str) -> list[str]:
    return [str(repository / "run_local.sh"), *TASK, f"--logdir={logdir}", *flags]


def clean_environment() -> dict[str, str]:
    """Without what could help a program to find the package."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def test_training_to_its_end(repository, tmp_path):
    """A run ends at its number of frames.

    Started elsewhere, where a folder bears the package's name and a module of the user's has the
    environment; the directory is that of the environment, below the working directory.
    """
    logdir = tmp_path / "runs" / "gym-vtrace-my_env_make"
    (tmp_path / "seed_rl").mkdir()
    (tmp_path / "my_env.py").write_text(
        "import gymnasium\ndef make():\n    return gymnasium.make('CartPole-v1')\n"
    )
    task = [str(repository / "run_local.sh"), *TASK[:4], "--env_name=my_env:make"]
    task += ["--total_environment_frames=2000", "--tensorboard=false"]
    result = helpers.run(*task, code=0, cwd=tmp_path, env=clean_environment())
    assert "training has ended" in result.stdout
    assert command_lines(logdir) == {}
    done = json.loads((logdir / "progress.json").read_text())
    assert done["phase"] == "done" and done["frames"] >= 2000
    assert list((logdir / "checkpoints").iterdir())
    for name in ("learner", "actor-0", "actor-1"):
        assert (logdir / "logs" / f"{name}.log").stat().st_size > 0
    # The same again says at once that there is nothing to train; more frames are trained.
    result = helpers.run(*task, code=0, cwd=tmp_path, env=clean_environment())
    assert result.stdout.startswith("This run had already finished after ")
    assert len(result.stdout.splitlines()) == 1
    assert json.loads((logdir / "progress.json").read_text()) == done


def test_ctrl_c(repository, tmp_path):
    """TensorBoard answers at the address shown; Ctrl-C saves a checkpoint and leaves nothing."""
    logdir = tmp_path / "run"
    output = tmp_path / "output"
    with open(output, "w") as file:
        run = subprocess.Popen(command(repository, logdir), stdout=file, stderr=file)
    try:
        wait_until(lambda: "| frames " in output.read_text() or run.poll() is not None)
        assert run.poll() is None, output.read_text()
        url = re.search(r"TensorBoard: (http://\S+)", output.read_text())
        assert url is not None
        assert "TensorBoard" in wait_until(lambda: _fetched(url.group(1)))
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(timeout=PATIENCE_S) == 0, output.read_text()
    finally:
        if run.poll() is None:
            run.kill()
    assert "stopped; the same command resumes from " in output.read_text()
    assert list((logdir / "checkpoints").iterdir())
    assert command_lines(logdir) == {}


def _fetched(url: str) -> str:
    """The page, or an empty string if there is no answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def test_a_wrong_flag_is_told_before_anything_is_done(repository, tmp_path):
    """With the usage; and the earlier run is still where it was."""
    logdir = tmp_path / "run"
    (logdir / "checkpoints").mkdir(parents=True)
    wrong = command(repository, logdir, "--gane=Pong", "--restart=fresh")
    result = helpers.run(*wrong, code=2)
    error, usage = result.stderr.splitlines()[-2:]
    assert error.startswith("error: ") and "gane" in error
    assert usage.startswith("usage: ./run_local.sh")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert list(logdir.iterdir()) == [logdir / "checkpoints"]
