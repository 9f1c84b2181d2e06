"""Learners that may not start, or are stopped before they have started."""

from __future__ import annotations

import os
import pathlib
import signal
import socket

import pytest

from seed_rl.common.run_files import run_record
from tests.helpers import errors
from tests.helpers.system_helpers import LIFE_STEP, site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

LEARNER = [LIFE_STEP, "--batch_size=4", "--unroll_length=5"]


@pytest.fixture
def place(tmp_path, socket_address):
    with site(tmp_path, socket_address, *LEARNER) as place:
        yield place


def is_importing(pid):
    """Whether the process has begun to load TensorFlow."""
    return "libtensorflow" in pathlib.Path(f"/proc/{pid}/maps").read_text()


def test_places_that_cannot_be_used(forks, place, tmp_path):
    """One line that says which option to change, exit code 2, no traceback."""
    (tmp_path / "file").write_text("")
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        listener.listen()
        port = listener.getsockname()[1]
        expected = {
            f"--server_address=localhost:{port}": f"localhost:{port}",
            f"--server_address=unix:{tmp_path}/no/folder/socket": "no/folder/socket",
            f"--logdir={tmp_path}/file/run": "--logdir",
        }
        if os.geteuid() != 0:  # Root may write everywhere.
            expected["--logdir=/run/seed_rl_of_root"] = "--logdir"
        for option, named in expected.items():
            refused(forks, place, named, option)


def refused(forks, place, named, *options):
    """Checks how a learner with these options ends; `named` is in the message."""
    learner = place.finish_learner(forks, *options, code=2)
    (error,) = errors(learner.stderr)
    assert named in error and "Traceback" not in learner.stderr


def test_a_directory_with_a_run_of_another_environment(place):
    """Refused before anything in it is touched."""
    checkpoint = place.logdir / "checkpoints" / "ckpt-000001-step-000000000800"
    checkpoint.mkdir(parents=True)
    run_record.write(checkpoint, {"env_name": "CartPole-v1"})
    before = sorted(place.logdir.rglob("*"))
    learner = place.learner()
    assert learner.wait() == 2, learner.text()
    assert len(learner.errors()) == 1, learner.text()
    assert "--env_name was CartPole-v1, is now seed_rl.testing" in learner.errors()[0]
    assert sorted(place.logdir.rglob("*")) == before


def test_ending_before_any_actor_came(forks, place):
    """It still obeys, with --stopped_exit_code. A second one is refused on its address, and in its
    directory, where it would overwrite what the first has written.
    """
    learner = place.learner("--stopped_exit_code=75")
    wait_until(lambda: "Serving inference" in learner.text(), running=learner)
    refused(forks, place, place.address, f"--logdir={place.logdir}-2")
    config = (place.logdir / "config.json").read_bytes()
    refused(forks, place, str(place.logdir), "--server_address=localhost:0", "--seed=7")
    assert (place.logdir / "config.json").read_bytes() == config
    assert learner.code is None
    learner.send(signal.SIGTERM)
    assert learner.wait() == 75
    assert "Ended after 0 environment frames" in learner.text()
    assert "Traceback" not in learner.text()


def test_ending_during_start_up(place):
    """SIGTERM while TensorFlow is loaded and while variables are made: an end without noise, and
    with --stopped_exit_code even before the flags are parsed.
    """
    early = place.learner("--stopped_exit_code=75")
    late = place.learner(f"--logdir={place.logdir}-2")
    wait_until(lambda: is_importing(early.pid), running=early)
    early.send(signal.SIGTERM)
    wait_until(lambda: (place.logdir.with_name("run-2")).is_dir(), running=late)
    late.send(signal.SIGTERM)
    for learner, code in ((early, 75), (late, 0)):
        assert learner.wait() == code, learner.text()
        assert "Traceback" not in learner.text()
