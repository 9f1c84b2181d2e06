"""Environments that report NaN, with a real learner and real actors."""

from __future__ import annotations

import json
import re
import signal

import pytest

from seed_rl.common.run_files import checkpoint_list
from seed_rl.launch import panel
from tests.helpers import errors
from tests.helpers.system_helpers import FAULTY, site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def place(tmp_path, socket_address):
    options = ("--num_envs=4", "--env_batch_size=2", "--unroll_length=5", "--batch_size=4")
    with site(tmp_path, socket_address, FAULTY, *options) as place:
        yield place


def fault(name, at=1):
    return "--env_kwargs=" + json.dumps({"fault": name, "at": at})


def test_one_actor_of_two(place):
    """Guards a run from a part of its environments, which the panel names."""
    learner = place.learner(fault(""))
    place.actor(0, fault(""))
    place.actor(1, fault("nan_observation", 100))

    def both_named():
        progress = place.progress(learner)
        named = progress and progress.warning and "environments 2, 3: " in progress.warning
        return progress if named else None

    progress = wait_until(both_named, running=learner)
    assert "NaN, infinity or numbers beyond" in progress.warning
    shown = panel.describe(panel.Status(progress, 2, 2))
    assert ("warning", progress.warning) in shown
    # Where some of a batch are good, training learns from these.
    place.trains_on(learner, 2000)
    assert "numbers beyond ±1e+09 in observations, rewards or recurrent states" in learner.text()
    learner.send(signal.SIGTERM)
    assert learner.wait() == 0, learner.text()


@pytest.mark.nightly
def test_all_of_them(forks, place):
    """Guards against a run that learns nothing to its end, and keeps the last good checkpoint."""
    learner = place.learner(fault(""))
    actors = [place.actor(task, fault("")) for task in range(2)]
    place.trains_on(learner)
    for program in (learner, *actors):
        program.send(signal.SIGTERM)
        assert program.wait() == 0, program.text()
    good = checkpoint_list.list_checkpoints(place.logdir / "checkpoints")

    # (Other options of the environment would be another run, and refused.)
    for task in range(2):
        place.actor(task, fault("nan_observation"))
    failed = place.finish_learner(forks, fault(""), "--save_checkpoint_secs=1", code=2)
    (error,) = errors(failed.stderr)
    assert "100 training steps in a row were skipped" in error
    # How many of them have come by then depends on when the actors started.
    assert re.search(r"numbers beyond .* of environments [0-3](, [1-3])*: \d+ unrolls", error)
    assert "The last 10 training steps were skipped" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert place.progress().phase == "failed"
    assert checkpoint_list.list_checkpoints(place.logdir / "checkpoints") == good
