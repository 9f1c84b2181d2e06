"""The programs in examples/, started as their docstrings say."""

import json

import pytest

from seed_rl.common.run_files import returns_log
from tests.helpers.system_helpers import train_to_end

pytestmark = pytest.mark.slow

SMALL_REPLAY = ("--replay_buffer_min_size=20", "--update_target_every_n_step=50")


def train(forks, folder, address, module, frames, *options):
    return train_to_end(forks, folder, address, module, frames, "--env_name=CartPole-v1", *options)


def tags(logdir):
    return b"".join(path.read_bytes() for path in logdir.rglob("*tfevents*"))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("module", "tag", "options"),
    [
        ("examples.rnd_vtrace", b"losses/rnd", ()),
        ("examples.rnd_r2d2", b"losses/rnd", SMALL_REPLAY),
    ],
)
def test_exploration_bonus_trains(forks, tmp_path, socket_address, module, tag, options):
    """Guards that a module of the user's composes with both agents, from flags to TensorBoard."""
    logdir = train(forks, tmp_path, socket_address, module, 8_000, "--bonus=0.2", *options)
    assert tag in tags(logdir)
    assert json.loads((logdir / "config.json").read_text())["bonus"] == 0.2


def test_callbacks_of_programs(forks, tmp_path, socket_address):
    """Guards `callbacks=` from a program down to the learner."""
    logdir = train(
        forks, tmp_path, socket_address, "examples.callback", 4_000, "--log_period_secs=1"
    )
    *reports, saved, phase = (logdir / "notes.txt").read_text().splitlines()
    assert reports[-1].startswith("4000 ") and saved.endswith("step-000000004000")
    assert phase == "done"


@pytest.mark.nightly
@pytest.mark.parametrize("module", ["examples.a2c", "examples.ppo", "examples.own_network"])
def test_other_algorithms_learn(forks, tmp_path, socket_address, module):
    """Guards own losses and own updates by their result: a random CartPole lasts 22 steps."""
    logdir = train(forks, tmp_path, socket_address, module, 60_000)
    returns = [episode.raw_return for episode in returns_log.read(logdir / returns_log.FILE_NAME)]
    assert sum(returns[-50:]) / 50 > 45
