"""Exported policies."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.inference.saved_model import save_model
from seed_rl.common.types import EnvOutput, Specs
from tests.helpers import PROGRAMS


class AgentOutput(NamedTuple):
    action: Any
    value: Any


class Agent(tf.Module):
    """Recurrent, of Keras layers, with a dictionary as its observation."""

    def __init__(self):
        super().__init__()
        self._core = tf.keras.layers.LSTMCell(4)
        self._head = tf.keras.layers.Dense(3)

    def initial_state(self, batch_size):
        return [tf.zeros([batch_size, 4]), tf.zeros([batch_size, 4])]

    def __call__(self, prev_actions, env_outputs, agent_state, unroll=False, is_training=False):
        inputs = tf.concat(
            [
                env_outputs.observation["x"],
                tf.one_hot(prev_actions, 3),
                env_outputs.reward[:, tf.newaxis],
            ],
            axis=1,
        )
        hidden, agent_state = self._core(inputs, agent_state)
        logits = self._head(hidden)
        return AgentOutput(tf.argmax(logits, 1, tf.int32), logits), agent_state


SPECS = Specs(
    action=tf.TensorSpec([], tf.int32, "action"),
    env_output=EnvOutput(
        reward=tf.TensorSpec([], tf.float32, "reward"),
        done=tf.TensorSpec([], tf.bool, "done"),
        observation={"x": tf.TensorSpec([2], tf.float32, "observation/x")},
        abandoned=tf.TensorSpec([], tf.bool, "abandoned"),
        episode_step=tf.TensorSpec([], tf.int32, "episode_step"),
    ),
)


@pytest.fixture
def agent():
    tf.keras.utils.set_random_seed(3)
    agent = Agent()
    outputs = tf.nest.map_structure(lambda s: tf.zeros([1, *s.shape], s.dtype), SPECS.env_output)
    agent(tf.zeros([1], tf.int32), outputs, agent.initial_state(1))
    return agent


def choose(agent):
    """The function to export: the agent's own actions."""

    def act(prev_actions, env_outputs, agent_state):
        output, agent_state = agent(prev_actions, env_outputs, agent_state)
        return output.action, agent_state

    return act


def test_a_stranger_runs_the_policy_without_this_package(forks, tmp_path, agent):
    assert save_model(tmp_path / "model", agent, SPECS, choose(agent)) == tmp_path / "model"
    forks.run(PROGRAMS / "stranger.py", tmp_path / "model", tmp_path / "result.npz", code=0)

    state, actions = agent.initial_state(5), tf.zeros([5], tf.int32)
    for step in range(4):
        x = np.random.default_rng(step).normal(size=[5, 2]).astype(np.float32)
        no = tf.zeros([5], tf.bool)
        env_outputs = EnvOutput(tf.fill([5], float(step)), no, {"x": x}, no, tf.fill([5], step))
        output, state = agent(actions, env_outputs, state)
        actions = output.action
    result = np.load(tmp_path / "result.npz")
    np.testing.assert_array_equal(result["actions"], actions)
    np.testing.assert_allclose(result["hidden"], state[0], rtol=1e-6)


def test_signatures_have_a_named_tensor_for_each_leaf(tmp_path, agent):
    """Guards what `saved_model_cli`, TensorFlow Serving and converters call."""
    save_model(tmp_path / "model", agent, SPECS, choose(agent))
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    state = signatures["initial_state"](batch_size=tf.constant(3))
    assert {name: value.shape for name, value in state.items()} == {
        "agent_state_0": [3, 4],
        "agent_state_1": [3, 4],
    }
    x = np.random.default_rng(0).normal(size=[3, 2]).astype(np.float32)
    no, actions = tf.zeros([3], tf.bool), tf.constant([0, 1, 2])
    env_outputs = EnvOutput(tf.fill([3], 2.0), no, {"x": x}, no, tf.fill([3], 4))
    named = {**env_outputs._asdict(), **state, "prev_action": actions, "observation_x": x}
    del named["observation"]
    result = signatures["serving_default"](**{k: tf.constant(v) for k, v in named.items()})
    expected, new_state = choose(agent)(actions, env_outputs, agent.initial_state(3))
    np.testing.assert_array_equal(result["action"], expected)
    np.testing.assert_allclose(result["agent_state_1"], new_state[1], rtol=1e-6)


def test_how_to_act_can_be_chosen_and_a_model_be_replaced(tmp_path, agent):
    save_model(tmp_path / "model", agent, SPECS, choose(agent))
    save_model(tmp_path / "model", agent, SPECS, lambda actions, _, state: (actions + 7, state))
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    model = tf.saved_model.load(str(tmp_path / "model"))
    env_outputs = tf.nest.map_structure(
        lambda s: tf.zeros([2, *s.shape], s.dtype), SPECS.env_output._asdict()
    )
    actions, _ = model.act(tf.constant([1, 2]), env_outputs, model.initial_state(tf.constant(2)))
    assert actions.numpy().tolist() == [8, 9]


def test_an_algorithm_may_act_with_variables_of_its_own(tmp_path, agent):
    """Guards the end of a run against TensorFlow's "untracked resource"."""
    shift = tf.Variable(5)
    save_model(tmp_path / "model", agent, SPECS, lambda actions, _, state: (actions + shift, state))
    model = tf.saved_model.load(str(tmp_path / "model"))
    env_outputs = tf.nest.map_structure(
        lambda s: tf.zeros([1, *s.shape], s.dtype), SPECS.env_output._asdict()
    )
    actions, _ = model.act(tf.constant([1]), env_outputs, model.initial_state(tf.constant(1)))
    assert actions.numpy().tolist() == [6]


def test_variables_are_exported_once(tmp_path, agent):
    """Guards the size of a model: those of Keras are objects beside TensorFlow's."""
    save_model(tmp_path / "model", agent, SPECS, choose(agent))
    saved = tf.train.list_variables(str(tmp_path / "model/variables/variables"))
    assert sum("VARIABLE_VALUE" in name for name, _ in saved) == 5  # Three of the cell, two.


def test_a_failed_export_keeps_the_old_model(tmp_path, agent, monkeypatch, caplog):
    save_model(tmp_path / "model", agent, SPECS, choose(agent))
    before = sorted(path.name for path in (tmp_path / "model").iterdir())

    def fail(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(tf.saved_model, "save", fail)
    assert save_model(tmp_path / "model", agent, SPECS, choose(agent)) is None
    assert "No space left on device" in caplog.text
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
