"""--stopped_exit_code, for engines that take exit code 0 for finished."""

from __future__ import annotations

import signal

import pytest

from tests.helpers.system_helpers import LIFE_STEP, site

pytestmark = pytest.mark.slow

STOPPED = 75


@pytest.fixture
def place(tmp_path):
    options = (LIFE_STEP, "--batch_size=2", "--unroll_length=10", "--num_envs=2")
    stopped = ("--env_batch_size=2", f"--stopped_exit_code={STOPPED}")
    with site(tmp_path, f"unix:{tmp_path}/socket", *options, *stopped) as place:
        yield place


def test_stopped_is_told_from_finished(forks, place):
    """Were either of the first two 0, Kubernetes would count an evicted process as finished.

    Of learners that have not trained yet, see test_system_start.py.
    """
    learner, actor = place.learner(), place.actor(0)
    place.trains_on(learner)
    learner.send(signal.SIGTERM)
    assert learner.wait() == STOPPED, learner.text()
    assert place.progress().phase == "stopped"
    actor.send(signal.SIGTERM)
    assert actor.wait() == STOPPED, actor.text()

    frames = f"--total_environment_frames={place.progress().frames + 2000}"
    actor = place.actor(0)
    finished = place.finish_learner(forks, frames)
    assert finished.returncode == 0, finished.stderr
    assert actor.wait() == 0 and "training is done" in actor.text(), actor.text()
    assert place.progress().devices == "inference on cpu:0, training on cpu:0"
    assert place.progress().phase == "done"
    again = place.finish_learner(forks, frames)  # Its engine had not noted that it had finished.
    assert again.returncode == 0, again.stderr
