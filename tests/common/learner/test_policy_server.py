"""Serving a trained agent: which episodes count, and which weights are served."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.checkpoints.checkpoints import CheckpointManager
from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.learner.policy_server import ServeRequest, _Score, _Weights


def _ended(env_id, reward=1.0):
    return EpisodeStats(*(np.array([value]) for value in (env_id, 1, reward, reward, 0.0, np.nan)))


@pytest.mark.parametrize(("every", "kept"), [(False, 100), (True, 150)])
def test_a_server_without_end_does_not_grow(tmp_path, every, kept):
    """Unless all episodes were asked for. Neither needs a disk before the end."""
    score = _Score(ServeRequest("", str(tmp_path / "later" / "episodes"), every=every), 1)
    assert str(score) == "no episode has ended yet"
    for number in range(150):
        score.add(_ended(0, float(number)))
    assert str(score) == "150 episodes, mean return of the last 99.50"
    (tmp_path / "later").mkdir()
    score.write()
    lines = (tmp_path / "later" / "episodes").read_text().splitlines()
    assert [json.loads(line)["reward"] for line in lines] == [*range(150 - kept, 150)]


def test_environments_that_nobody_steps_are_named(tmp_path):
    """Guards against waiting silently, for ever, for more environments than actors have."""
    score = _Score(ServeRequest("", str(tmp_path / "episodes"), episodes=100), 256)
    silence = np.full(256, np.nan)
    assert score.missing(silence) == ""  # No actor yet.
    silence[:8] = 0.0
    news = []
    for env_id in range(100):
        news.append(score.missing(silence))
        score.add(_ended(env_id))
    assert news[:8] == [""] * 8
    assert "environments 8 to 99, which no actor steps" in news[8] and "--num_envs=8" in news[8]
    assert score.complete and score.missing(silence) == ""


def test_damaged_checkpoints_are_passed_over(tmp_path, caplog):
    """As in `seed-rl play`; and they are not read again each time. What may act besides the
    network is loaded, too.
    """
    network, other = tf.Module(), tf.Variable(0)
    network.weight = tf.Variable(0)
    trackables = {"agent": network, "other": other}
    manager = CheckpointManager(tmp_path / "checkpoints", trackables, keep=9)

    def save(value, damaged=False):
        network.weight.assign(value)
        other.assign(value)
        path = manager.save(value)
        if damaged:
            (path / "variables.index").write_bytes(b"")

    algorithm = SimpleNamespace(network=network, checkpointables=lambda: {"other": other})
    job = SimpleNamespace(options={}, network=(), algorithm=algorithm)
    weights = _Weights(job, tmp_path)
    save(1)
    save(2, damaged=True)
    for _ in range(2):
        weights.refresh()
        assert int(network.weight) == 1 and str(weights).endswith("1")
    save(3, damaged=True)
    for _ in range(2):
        weights.refresh()
        assert int(network.weight) == 1 and str(weights).endswith("1")
    assert caplog.text.count("Skipping a damaged checkpoint") == 3
    save(4)
    network.weight.assign(0)
    other.assign(0)
    weights.refresh()
    assert int(network.weight) == int(other) == 4 and str(weights).endswith("4")
