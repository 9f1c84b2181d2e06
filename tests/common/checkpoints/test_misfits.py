"""Messages about checkpoints of another network or other options."""

from __future__ import annotations

import gc

import pytest
import tensorflow as tf

from seed_rl.common.checkpoints.checkpoints import CheckpointManager, load_weights
from seed_rl.common.errors import UserError

SHAPE = r"agent/layers/0/_kernel has shape \[3, 4\] in the checkpoint, but \[3, 5\] here"


class Agent(tf.Module):
    """One layer or more, with this many units each."""

    def __init__(self, *units):
        super().__init__()
        self.layers = [tf.keras.layers.Dense(n) for n in units]
        self.head = tf.Variable(0.0)
        inputs = tf.zeros([1, 3])
        for layer in self.layers:
            inputs = layer(inputs)


def manager(directory, units=(4,), optimizer="RMSprop", config=None):
    agent = Agent(*units)
    optimizer = getattr(tf.keras.optimizers, optimizer)()
    optimizer.build([v for layer in agent.layers for v in layer.trainable_variables])
    return CheckpointManager(directory, {"agent": agent, "optimizer": optimizer}, config=config)


@pytest.mark.parametrize(
    ("change", "saved", "now", "reason"),
    [
        # The option that was changed, whatever else may change from one life to the next.
        (
            {"units": (5,)},
            {"mlp_sizes": (64, 64), "batch_size": 8, "learning_rate": 0.1},
            {"mlp_sizes": (32, 32), "batch_size": 9, "learning_rate": 0.2},
            rf": --mlp_sizes was 64,64, is now 32,32 \({SHAPE}\)\.",
        ),
        (
            {"optimizer": "Adam"},
            {"optimizer": "rmsprop"},
            {"optimizer": "adam"},
            ": --optimizer was rmsprop, is now adam",
        ),
        # A number may matter too: without momentum, RMSProp has fewer variables.
        ({"optimizer": "Adam"}, {"momentum": 0.9}, {"momentum": 0.0}, "--momentum was 0.9, is now"),
        # No option: the code has changed.
        (
            {"units": (5,)},
            {"batch_size": 8},
            {"batch_size": 9},
            rf"\({SHAPE}\)\. No option explains it, so the code",
        ),
        ({"units": ()}, {}, {}, r"\(agent/layers/0\S+ is in the checkpoint, but not here\)\. No"),
        ({"units": (4, 4)}, {}, {}, r"\(agent/layers/1\S+ is not in the checkpoint\)\. No option"),
    ],
)
def test_a_run_is_not_continued(tmp_path, caplog, change, saved, now, reason):
    """Guards the message: what was changed, the first variable, and the possible fixes."""
    manager(tmp_path, config=saved).save(1)
    with pytest.raises(UserError, match=rf"does not fit.*{reason}") as refused:
        manager(tmp_path, config=now, **change).restore_latest()
    message = str(refused.value)
    assert "--restart=fresh" in message and "--logdir" in message
    assert "--batch_size" not in message and "--learning_rate" not in message
    del refused
    gc.collect()  # TensorFlow complains when it forgets what it could not restore.
    assert "could not be found" not in caplog.text


def test_weights_of_another_network_are_not_taken(tmp_path):
    manager(tmp_path).save(1)
    with pytest.raises(UserError, match=rf"do not fit this agent \({SHAPE}\)"):
        load_weights(tmp_path, Agent(5))
