"""A program written for the original SEED RL, as a user has it: learner and actors to the end."""

import collections
import json
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.vtrace import learner, losses
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common import utils
from seed_rl.common.config import options
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.run_files import saved_flags
from seed_rl.common.types import EnvOutput
from seed_rl.compat.agents import vtrace
from tests.helpers import PROGRAMS

PROGRAM = str(PROGRAMS / "existing_main.py")


@pytest.mark.slow
def test_learner_and_actors(train_to_end):
    """Guards the whole of what existing programs use: imports, flags, loops, agent, optimizer.

    The agent is called with a pair; all of ours have the other form.
    """
    logdir = train_to_end(
        *(PROGRAM, 500),
        *("--num_envs=4", "--env_batch_size=2", "--batch_size=2"),
        actors=2,
    )
    progress = json.loads((logdir / "progress.json").read_text())
    assert (progress["phase"], progress["frames"]) == ("done", 500)
    # 5 steps an unroll is the program's own default, which must win over the learner's.
    (checkpoint,) = (logdir / "checkpoints").iterdir()
    saved = tf.train.load_checkpoint(str(checkpoint / "variables"))
    assert saved.get_tensor("train_steps/.ATTRIBUTES/VARIABLE_VALUE") == 500 // (5 * 2)
    options = json.loads((checkpoint / "config.json").read_text())
    assert options["program"] == PROGRAM
    assert options["learning_rate"] == 0.00048  # Of the program's own flag.
    assert options["corridor_length"] == 4 and "--corridor_length=4" in options["arguments"]


def test_a_resumed_run_keeps_the_options_of_its_optimizer(monkeypatch):
    """Guards --clip_norm of a program: a saved run's options are those of the flags only then."""
    calls = []
    monkeypatch.setattr(saved_flags, "adopt_saved_run", lambda: calls.append("adopted"))
    monkeypatch.setattr(vtrace, "_optimizer_config", lambda _: calls.append("read"))
    monkeypatch.setattr(vtrace, "create_job", mock.Mock())
    learner.learner_loop(mock.Mock(), mock.Mock(), mock.Mock())
    assert calls == ["adopted", "read"]


AgentOutput = collections.namedtuple("AgentOutput", "action policy_logits baseline")


class Pair(tf.Module):
    """A linear agent of the form with a pair."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable([[0.3, -0.2, 0.5], [0.1, 0.4, -0.7]])

    def initial_state(self, batch_size):
        return [tf.zeros([batch_size, 1])]

    def __call__(self, input_, agent_state, unroll=False, is_training=False):
        assert unroll and is_training
        _, env_outputs = input_
        outputs = env_outputs.observation @ self.weights
        return AgentOutput(None, outputs[..., :2], outputs[..., 2]), agent_state


class Separate(Pair):
    def __call__(self, prev_actions, env_outputs, agent_state, unroll=False, is_training=False):
        return super().__call__((prev_actions, env_outputs), agent_state, unroll, is_training)


def test_compute_loss_logs_what_our_loss_returns(caplog, monkeypatch):
    """Guards the signature with a logger, env outputs in a plain tuple, that both forms of an
    agent give the same loss, and that AutoGraph, which such programs use, converts it.
    """
    monkeypatch.setattr(tf.get_logger(), "propagate", True)
    rng = np.random.default_rng(0)
    shape = [6, 3]
    batch = learner.Unroll(
        agent_state=[tf.zeros([3, 1])],
        prev_actions=tf.zeros(shape, tf.int32),
        env_outputs=EnvOutput(
            tf.constant(rng.normal(size=shape), tf.float32),
            tf.constant(rng.random(shape) < 0.2),
            tf.constant(rng.normal(size=[*shape, 2]), tf.float32),
            tf.zeros(shape, tf.bool),
            tf.zeros(shape, tf.int32),
        ),
        agent_outputs=AgentOutput(
            tf.constant(rng.integers(0, 2, shape), tf.int32),
            tf.constant(rng.normal(size=[*shape, 2]), tf.float32),
            tf.zeros(shape),
        ),
    )
    distribution = categorical_distribution(2, tf.int32)
    config = options.from_flags(VTraceConfig)  # Other tests of this process may define flags.
    expected, metrics = losses.compute_loss(
        config, distribution, Separate(), *batch, losses.create_entropy_cost(config)
    )
    logger = utils.ProgressLogger()
    batch = batch._replace(env_outputs=tuple(batch.env_outputs))
    for agent in (Separate(), Pair()):
        loss, session = tf.function(learner.compute_loss)(logger, distribution, agent, *batch)
        np.testing.assert_allclose(loss, expected, rtol=1e-6)
        np.testing.assert_allclose(session["policy/entropy"], metrics["policy/entropy"])
        logger.step_end(session)
    assert "AutoGraph could not transform" not in caplog.text
