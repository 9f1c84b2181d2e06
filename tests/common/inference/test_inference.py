"""Central inference: inputs, records, devices."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.common.inference import inference as inference_lib
from seed_rl.common.inference.env_specs import env_output_specs
from seed_rl.common.inference.inference import CentralInference
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import variables
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.types import EnvOutput, Specs


class Counter(tf.Module):
    """An agent whose state counts the steps of an episode, and whose action is that count."""

    def __init__(self):
        super().__init__()
        self.offset = tf.Variable(0, dtype=tf.int32)

    def initial_state(self, batch_size):
        return tf.zeros([batch_size], tf.int32)

    def __call__(self, env_outputs, state):
        state = tf.where(env_outputs.done, 0, state)
        return state + self.offset, state + 1


class Counting(Algorithm):
    """Records its actions as they were before the offset."""

    def __init__(self, num_overlapping_steps=0):
        self.network = self.make_network()
        self.num_overlapping_steps = num_overlapping_steps

    def make_network(self):
        return Counter()

    def act(self, agent, env_ids, prev_actions, env_outputs, agent_state):
        action, state = agent(env_outputs, agent_state)
        return Acted(action, {"doubled": 2 * action}, state)

    def evaluate(self, prev_actions, env_outputs, agent_state):
        return self.network(env_outputs, agent_state)

    def loss(self, batch):
        return StepResult(tf.constant(0.0), {})


SPECS = Specs(
    tf.TensorSpec([], tf.int32),
    env_output_specs(spaces.Dict({"seen": spaces.Box(0, 255, (2,), np.uint8)})),
)


def make(algorithm, num_eval_envs=0, device="/cpu:0"):
    return CentralInference(
        algorithm,
        SPECS,
        [(device, algorithm.network)],
        num_envs=3,
        num_eval_envs=num_eval_envs,
        unroll_length=2,
        queue_capacity=100,
    )


def call(inference, env_ids, done=False, seen=0, run_id=1, episode_step=0):
    n = len(env_ids)
    return (
        inference.functions[0](
            tf.constant(env_ids, tf.int32),
            tf.fill([n], tf.constant(run_id, tf.int64)),
            EnvOutput(
                tf.zeros([n]),
                tf.fill([n], done),
                {"seen": tf.fill([n, 2], tf.constant(seen, tf.uint8))},
                tf.fill([n], False),
                tf.fill([n], episode_step),
            ),
            tf.zeros([n]),
            tf.fill([n], np.nan),
        )
        .numpy()
        .tolist()
    )


def test_state_is_kept_per_environment():
    """Guards that rows of a batch find their own state, whatever the batch."""
    inference = make(Counting())
    assert call(inference, [0, 1]) == [0, 0]
    assert call(inference, [1]) == [1]
    assert call(inference, [2, 1, 0]) == [0, 2, 1]
    assert call(inference, [1], done=True) == [0]
    assert call(inference, [0], run_id=2) == [0]


def test_evaluation_is_of_whole_games():
    """Guards that a lost life resets the state of training environments only."""
    inference = make(Counting(), num_eval_envs=1)
    call(inference, [0, 1, 2])
    assert call(inference, [0, 1, 2], episode_step=1) == [1, 1, 1]
    assert call(inference, [0, 1, 2], done=True, episode_step=2) == [0, 0, 2]
    assert call(inference, [0, 1, 2], done=True, episode_step=0) == [0, 0, 0]


@pytest.mark.parametrize(("sizes", "small", "static"), [([3], 3, 3), ([1, 2, 3], 1, None)])
def test_padded_batches(monkeypatch, sizes, small, static):
    """Guards that TPUs and GPUs run only their sizes, all at the start, with the same answers."""
    ran: list[int] = []
    traced: list[int | None] = []

    class Sizes(Counting):
        def act(self, agent, env_ids, prev_actions, env_outputs, agent_state):
            leaves = tf.nest.flatten((env_ids, env_outputs, agent_state))
            if not tf.executing_eagerly():
                traced.extend(t.shape[0] for t in leaves)
                run = [tf.py_function(lambda n: ran.append(int(n)), [tf.shape(leaves[0])[0]], [])]
                with tf.control_dependencies(run):
                    env_ids = tf.identity(env_ids)
            return super().act(agent, env_ids, prev_actions, env_outputs, agent_state)

    monkeypatch.setattr(inference_lib, "batch_sizes", lambda device, largest: sizes)
    inference = make(Sizes(num_overlapping_steps=1))
    assert ran == sizes
    ran.clear()
    for seen in range(4):
        assert call(inference, [2], seen=seen) == [seen]
    assert ran == [small] * 4
    assert call(inference, [2, 1, 0]) == [4, 0, 0]
    assert set(traced) == {static}
    (outputs,) = tf.nest.flatten(inference.store.dequeue(1).steps.agent_outputs)
    np.testing.assert_array_equal(outputs[:, 0], [0, 2, 4, 6])


@pytest.mark.parametrize(
    ("device", "largest", "sizes"),
    [
        ("/job:worker/device:TPU:0", 12, [12]),
        ("/gpu:0", 12, [1, 2, 4, 8, 12]),
        ("/gpu:0", 8, [1, 2, 4, 8]),
        ("/gpu:0", 1, [1]),
        ("cpu:0", 12, []),
    ],
)
def test_batch_sizes_of_devices(device, largest, sizes):
    assert inference_lib.batch_sizes(device, largest) == sizes


def test_an_unknown_environment_is_refused_before_a_policy_looks_it_up():
    """Guards the message that names the mend, against that of R2D2's table of exploration rates."""

    class LookingUp(Counting):
        def act(self, agent, env_ids, *others):
            acted = super().act(agent, env_ids, *others)
            rates = tf.gather(tf.range(3), env_ids)
            return acted._replace(agent_outputs={"doubled": 0 * rates + 2 * acted.action})

    inference = make(LookingUp())
    with pytest.raises(tf.errors.InvalidArgumentError, match="larger --num_envs"):
        call(inference, [9])


def test_every_op_has_its_place():
    """Guards several GPUs: an op without a device would run on the first, behind its training."""
    # On the CPU, where there is no such GPU.
    inference = make(Counting(), num_eval_envs=1, device="/gpu:1")
    graph = inference.functions[0].get_concrete_function().graph
    follow = {"Placeholder", "ReadVariableOp", "Identity", "NoOp"}  # Their inputs, or variables.
    places = {op.type: op.device for op in graph.get_operations() if op.type not in follow}
    assert set(places.values()) == {"/device:CPU:0", "/device:GPU:1"}
    assert places["Pad"] == places["Mul"] == "/device:GPU:1"
    assert places["LogicalOr"] == places["SeedInferenceEnd"] == "/device:CPU:0"


def test_unrolls_hold_what_was_seen_and_done():
    """Guards the record: previous action, observation, outputs and the state before the first."""
    inference = make(Counting(num_overlapping_steps=1))
    for seen in range(6):
        call(inference, [2], seen=seen)
    unrolls = inference.store.dequeue(2)
    np.testing.assert_array_equal(unrolls.agent_state, [0, 2])
    steps = unrolls.steps
    np.testing.assert_array_equal(steps.prev_actions[:, 1], [1, 2, 3, 4])
    np.testing.assert_array_equal(steps.env_outputs.observation["seen"][:, 1, 0], [2, 3, 4, 5])
    np.testing.assert_array_equal(steps.agent_outputs["doubled"][:, 1], [4, 6, 8, 10])


def test_inference_uses_the_newest_weights():
    """Guards the paper's point that the policy may change within an unroll."""
    algorithm = Counting()
    inference = make(algorithm)
    assert call(inference, [0]) == [0]
    variables.variables(algorithm.network)[0].assign(100)
    assert call(inference, [0]) == [101]
