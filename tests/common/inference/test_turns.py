"""Inference and training in turns (`unrolls_per_step`): who waits, for what, and who does not."""

import contextlib
import time
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.inference.inference import CentralInference
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import learner
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.learner.job import make_job
from seed_rl.grpc import ops
from seed_rl.testing.envs import LifeStepEnv
from tests.helpers import network_inputs
from tests.helpers.inference_stores import make_store, step
from tests.helpers.op_helpers import Background


def test_steps_wait_from_the_last_unroll_until_the_training_step_is_done():
    store = make_store(num_envs=2, unrolls_per_step=2)
    step(store, [0, 1])
    step(store, [0])  # One of the two unrolls.
    step(store, [1])
    calls = [Background(step, store, [0]), Background(step, store, [1])]
    assert all(call.waits() for call in calls)
    store.dequeue(2)
    assert all(call.waits() for call in calls)
    before = store.counters()
    store.trained()
    for call in calls:
        call.result()
    assert before.steps == 4 and store.counters().steps == 6


def test_evaluation_waits_as_well():
    store = make_store(num_envs=2, num_training_envs=1, unrolls_per_step=1)
    step(store, [0, 1])
    step(store, [0])
    call = Background(step, store, [1])
    assert call.waits()
    store.dequeue(1)
    store.trained()
    call.result()


def test_without_a_full_batch_nothing_waits():
    """Guards against a hang where fewer environments are alive than a step has unrolls."""
    store = make_store(num_envs=4, unrolls_per_step=4)
    num_steps = 0

    def train():
        for _ in range(5):
            store.dequeue(4)
            store.trained()

    training = Background(train)
    while store.counters().unrolls < 20:
        step(store, [0, 2, 3])
        num_steps += 1
    training.result()
    assert num_steps == 8  # 3 unrolls each, but for the first.
    step(store, [0, 2, 3])


def test_replicas_dequeue_their_parts_and_nothing_ahead():
    """Surplus unrolls stay in the store: the next training step gets them, after this one."""
    store = make_store(num_envs=6, unrolls_per_step=4, queue_capacity=10)
    step(store, range(6))
    step(store, range(6))
    parts = [store.dequeue(2) for _ in range(2)]
    ahead = Background(store.dequeue, 2)
    assert ahead.waits()
    waiting = Background(step, store, range(6))
    assert waiting.waits()
    store.trained()
    np.testing.assert_array_equal(
        [*parts[0].env_ids, *parts[1].env_ids, *ahead.result().env_ids], range(6)
    )
    waiting.result()  # The two unrolls are not a full batch.
    assert Background(step, store, [0]).waits()  # With the next six, they are.
    store.close()


def test_closing_ends_the_wait():
    store = make_store(num_envs=1, unrolls_per_step=1)
    step(store, [0])
    step(store, [0])
    call = Background(step, store, [0])
    assert call.waits()
    store.close()
    call.result()
    step(store, [0])


def test_an_actor_that_comes_back_during_the_wait():
    """The first call of its earlier life still waits, and must not disturb the new one.

    A thread pool chooses which of the two begins first: hence the number of environments.
    """
    envs = range(1, 17)
    store = make_store(num_envs=17, unrolls_per_step=1, queue_capacity=100)
    step(store, [0])
    step(store, [0])
    pairs = [[env_id, env_id + 1] for env_id in envs[::2]]
    old = [Background(step, store, pair, 1) for pair in pairs]
    assert old[-1].waits()
    new = [Background(step, store, [env_id], 2) for env_id in envs]
    assert new[-1].waits()
    store.dequeue(1)
    store.trained()
    for call in new:
        call.result()
    for pair, call in zip(pairs, old, strict=True):
        with contextlib.suppress(tf.errors.FailedPreconditionError):  # It may have begun first.
            call.result()
        for env_id in pair:  # As a server tries the calls of a batch that failed again.
            with pytest.raises(tf.errors.FailedPreconditionError, match="a newer actor"):
                step(store, [env_id], 1)
    step(store, list(envs), 2)


def test_the_first_attempt_of_a_life_counts():
    """Guards a living actor from a dead one whose call is tried again because others in its batch
    failed: the new attempt must not make it the newer one."""
    store = make_store(num_envs=3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in"):
        step(store, [9, 1, 2], 1)
    step(store, [1], 2)
    with pytest.raises(tf.errors.FailedPreconditionError, match="a newer actor"):
        step(store, [1], 1)
    step(store, [2], 1)
    step(store, [1, 2], 2)


def test_training_is_no_silence():
    """Guards actors that are not called silent because training takes its time."""
    store = make_store(num_envs=2, unrolls_per_step=1)
    step(store, [0, 1])
    step(store, [0])
    before = store.silence()
    time.sleep(0.5)
    np.testing.assert_array_equal(store.silence(), before)
    store.dequeue(1)
    end = time.monotonic()
    store.trained()
    after = store.silence()
    assert (after <= before + (time.monotonic() - end) + 1e-3).all()
    time.sleep(0.1)
    assert (store.silence() > after + 0.09).all()  # No calls now: silence.


def test_sizes_that_would_never_go_on_are_errors():
    with pytest.raises(tf.errors.InvalidArgumentError, match="divide"):
        make_store(num_envs=4, unrolls_per_step=4).dequeue(3)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid sizes"):
        make_store(num_envs=4, unrolls_per_step=5, queue_capacity=4)


class Versions(Algorithm):
    """Its one weight counts the training steps, and each step records the weight it was made by."""

    block_inference_on_training = True

    def __init__(self):
        self.network = self.make_network()
        self.made_by = []

    def make_network(self):
        network = tf.Module()
        network.weight = tf.Variable(0.0)
        network.initial_state = lambda batch_size: ()
        return network

    def act(self, network, env_ids, prev_actions, env_outputs, agent_state):
        version = tf.fill(tf.shape(env_ids), network.weight.read_value())
        version = tf.ensure_shape(version, env_ids.shape)
        return Acted(tf.zeros_like(env_ids, tf.int64), version, agent_state)

    def evaluate(self, prev_actions, env_outputs, agent_state):
        raise NotImplementedError

    def loss(self, batch):
        # A step of gradient descent adds 1; like any, it needs the batch.
        continued = tf.reduce_mean(1.0 - tf.cast(batch.env_outputs.done, tf.float32))
        return StepResult(-self.network.weight * continued, {}, tf.transpose(batch.agent_outputs))

    def after_step(self, feedback, train_steps):
        self.made_by.append(feedback.numpy())


@pytest.mark.parametrize(("queue_size", "capacity"), [(1, 4), (20, 20)])
def test_the_learner_takes_turns_for_an_algorithm_that_asks_for_it(
    tmp_path, socket_address, monkeypatch, queue_size, capacity
):
    """From the algorithm's attribute to the calls of an actor, with a server in between.

    Guards, too, the size of the queue, which holds a batch whatever its option says.
    """
    algorithm, num_steps = Versions(), 5
    job = make_job(
        lambda *_: LifeStepEnv(),
        None,
        lambda _: algorithm,
        lambda _: (tf.keras.optimizers.SGD(1.0), lambda _: 1.0),
        env_config={},
        run=RunConfig(server_address=socket_address, logdir=str(tmp_path), num_envs=4),
        config=LearnerConfig(
            batch_size=4,
            unroll_length=3,
            unroll_queue_size=queue_size,
            total_environment_frames=num_steps * 4 * 3,
            save_model=False,
        ),
        optimizer=OptimizerConfig(),
        device_config=DeviceConfig("cpu:0", "cpu:0"),
    )
    outputs = network_inputs.env_outputs((4,), np.zeros([4, 4], np.float32), p_done=0.0)
    outputs = tf.nest.map_structure(lambda t: t.numpy(), outputs)

    def act():
        client = ops.Client(socket_address)
        with pytest.raises(tf.errors.OpError):  # The learner ends.
            while True:
                client.inference(
                    np.arange(4, dtype=np.int32),
                    np.ones(4, np.int64),
                    outputs,
                    *[outputs.reward] * 2,
                )

    actor = Background(act)
    inference = mock.Mock(side_effect=CentralInference)
    monkeypatch.setattr(learner, "CentralInference", inference)
    learner.Learner(job).train()
    actor.result()
    assert inference.call_args.kwargs["queue_capacity"] == capacity
    assert len(algorithm.made_by) == num_steps
    for version, made_by in enumerate(algorithm.made_by):
        np.testing.assert_array_equal(made_by[:, 1:], np.full([4, 3], version))
        # The first step of an unroll is the last of the one before.
        np.testing.assert_array_equal(made_by[:, 0], np.full([4], max(0, version - 1)))
