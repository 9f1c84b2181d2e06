"""The checkpoint of a run's best agent."""

import json
import shutil

import pytest
import tensorflow as tf

from seed_rl.common.callbacks import Report, Run
from seed_rl.common.checkpoints.best import BestCheckpoint
from seed_rl.common.checkpoints.checkpoints import CheckpointManager
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.run_files.progress import ProgressWriter


@pytest.fixture
def offer(tmp_path):
    """Offers an agent with a variable of the given value; `restart` is a later learner."""
    variable = tf.Variable(0.0)

    def save(directory):
        manager = CheckpointManager(directory / "checkpoints", {"variable": variable}, keep=1)
        return manager.save(int(variable.numpy()))

    def restart(period_s=0.0, continues=True):
        if continues:
            save(tmp_path)
        offer.best = BestCheckpoint(period_s)
        offer.best.run = Run(tmp_path, {}, save)
        offer.best.on_start()

    def offer(mean, frames, last=False):
        variable.assign(frames)
        progress = ProgressWriter(tmp_path, 100, frames).last
        offer.best.on_report(Report(progress, {}, (), mean, last))

    offer.restart = restart
    offer.restart(continues=False)
    return offer


def kept(tmp_path):
    """(frames, return) of the kept checkpoint, as its directory and its record say."""
    (entry,) = checkpoint_list.list_checkpoints(tmp_path / "best/checkpoints")
    record = json.loads((tmp_path / "best/best.json").read_text())
    assert record["frames"] == entry.step
    reader = tf.train.load_checkpoint(str(entry.path / "variables"))
    assert reader.get_tensor("variable/.ATTRIBUTES/VARIABLE_VALUE") == entry.step
    return entry.step, record["return"]


def test_only_a_better_agent_replaces_it(offer, tmp_path):
    """Guards negative returns, and what a resumed run must exceed."""
    offer(None, 1)
    assert not checkpoint_list.list_checkpoints(tmp_path / "best/checkpoints")
    for frames, mean in enumerate([-20.0, -5.0, -5.0, -7.0], 2):
        offer(mean, frames)
    assert kept(tmp_path) == (3, -5.0)
    offer.restart()
    offer(-6.0, 10)
    assert kept(tmp_path) == (3, -5.0)
    offer(-4.0, 11)
    assert kept(tmp_path) == (11, -4.0)
    shutil.rmtree(tmp_path / "checkpoints")
    offer.restart(continues=False)
    offer(-9.0, 2)
    assert kept(tmp_path) == (2, -9.0), "a run that starts over has its own best"


def test_it_is_not_saved_all_the_time(offer, tmp_path):
    offer.restart(period_s=3600)
    for frames in range(1, 5):
        offer(float(frames), frames)
    assert kept(tmp_path) == (1, 1.0)
    offer(5.0, 5, last=True)
    assert kept(tmp_path) == (5, 5.0)
