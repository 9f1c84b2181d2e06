"""The training step: which rows each gradient step takes, loops, and what is averaged."""

import collections
import functools
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.policy_gradient.config import (
    BATCH_MODES,
    MinibatchSettings,
)
from seed_rl.agents.policy_gradient.modules import minibatches, policy_losses
from seed_rl.agents.policy_gradient.modules import ppo_training_step_utils as old_names
from seed_rl.agents.policy_gradient.modules.generalized_onpolicy_loss import (
    GeneralizedOnPolicyLoss,
)
from seed_rl.agents.policy_gradient.modules.logging_module import LoggingModule
from seed_rl.agents.policy_gradient.modules.policy_regularizers import KLPolicyRegularizer
from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner import variables
from seed_rl.common.learner.algorithm import StepResult
from seed_rl.common.learner.training import minimize
from seed_rl.common.monitoring.skipped_steps import SkippedSteps
from seed_rl.common.networks.network_factory import create_network
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.returns.advantages import GAE
from seed_rl.common.types import EnvOutput, Unroll
from seed_rl.compat.progress_logger import ProgressLogger

AgentOutput = collections.namedtuple("AgentOutput", "action policy_logits baseline")
DISTRIBUTION = categorical_distribution(3, tf.int32)
T, B = 4, 6


def make_batch(state=()):
    """Unrolls whose observations number their steps."""
    rng = np.random.default_rng(0)
    shape = (T + 1, B)
    done = np.zeros(shape, bool)
    done[2, 1] = done[3, 4] = True
    abandoned = done & (np.arange(B) == 4)
    numbers = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    reward = np.where(abandoned, 0, rng.normal(size=shape)).astype(np.float32)
    env_outputs = EnvOutput(
        reward, done, numbers[..., None] / numbers.size, abandoned, np.zeros(shape, np.int32)
    )
    actions = rng.integers(0, 3, shape).astype(np.int32)
    logits = rng.normal(size=(*shape, 3)).astype(np.float32)
    outputs = AgentOutput(actions, logits, rng.normal(size=shape).astype(np.float32))
    return tf.nest.map_structure(tf.constant, Unroll(state, actions, env_outputs, outputs))


class Network(tf.Module):
    """Linear policy and value of the observation."""

    def __init__(self):
        super().__init__()
        self.policy = tf.Variable([[0.5, -0.5, 0.1]])
        self.value = tf.Variable([0.3])

    def __call__(self, prev_actions, env_outputs, agent_state, unroll=False, is_training=False):
        x = env_outputs.observation
        logits = tf.matmul(x, tf.broadcast_to(self.policy, [*x.shape[:-2], 1, 3]))
        return AgentOutput(None, logits, x[..., 0] * self.value[0]), agent_state


def make_loss(network=None, **options):
    return GeneralizedOnPolicyLoss(
        network or Network(),
        None,
        DISTRIBUTION,
        GAE(0.9),
        policy_losses.ppo(0.2, normalize_advantages=True),
        0.9,
        regularizer=KLPolicyRegularizer(entropy=0.01),
        **options,
    )


def make_minimize(loss, optimizer=None):
    trained = variables.trainable_variables(loss)
    optimizer = optimizer or tf.keras.optimizers.Adam(0.01)
    optimizer.build(trained)
    return functools.partial(minimize, optimizer=optimizer, variables=trained, clip_norm=1.0)


class Recorder(tf.Module, LoggingModule):
    """A loss that only notes which observations, masks and states it is given."""

    network = None

    def __init__(self):
        super().__init__()
        self.observations, self.masks, self.states, self.computed = [], [], [], 0

    def mask(self, env_outputs):
        return 1.0 - tf.cast(env_outputs.abandoned[1:], tf.float32)

    def compute_advantages(self, *batch, rewards=None):
        self.computed += 1
        numbers = batch[2].observation[:-1, :, 0]
        return numbers + 10, numbers + 20

    def __call__(
        self, state, actions, env, outputs, targets=None, advantages=None, mask=None, rewards=None
    ):
        numbers = env.observation[..., 0].numpy()
        if targets is not None:
            np.testing.assert_array_equal(targets, numbers + 10)
            np.testing.assert_array_equal(advantages, numbers + 20)
            self.masks.append(mask.numpy())
        self.observations.append(numbers)
        self.states.append(state)
        return tf.constant(0.0)


def record(batch, *settings):
    recorder = Recorder()
    with mock.patch.object(minibatches, "_can_loop", return_value=False):
        minibatches.train(recorder, batch, lambda loss: loss(), MinibatchSettings(*settings))
    return recorder


def test_repeat_takes_the_same_unrolls_in_each_epoch():
    batch = make_batch()
    seen = record(batch, "repeat", 2, 3).observations
    numbers = batch.env_outputs.observation[..., 0].numpy()
    expected = [numbers[:, i : i + 2] for i in (0, 2, 4)] * 2
    assert len(seen) == 6
    for actual, wanted in zip(seen, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


def test_shuffle_takes_each_unroll_once_per_epoch():
    """With its recurrent state, and in another order each time."""
    tf.random.set_seed(1)
    batch = make_batch(state=(tf.range(B),))
    recorder = record(batch, "shuffle", 4, 2)
    numbers = batch.env_outputs.observation[..., 0].numpy()
    epochs = [recorder.observations[i : i + 2] for i in range(0, 8, 2)]
    orders = []
    for epoch, states in zip(epochs, np.reshape(recorder.states, (4, 2, -1)), strict=True):
        order = np.concatenate(states)
        np.testing.assert_array_equal(np.concatenate(epoch, axis=1), numbers[:, order])
        np.testing.assert_array_equal(np.sort(order), np.arange(B))
        orders.append(tuple(order))
    assert len(set(orders)) > 1


@pytest.mark.parametrize("mode", ["split", "split_with_advantage_recomputation"])
def test_split_takes_each_transition_once_per_epoch(mode):
    """With its own target, advantage and mask; the last step of an unroll is no transition."""
    tf.random.set_seed(0)
    batch = make_batch()
    recorder = record(batch, mode, 3, 4)
    assert recorder.computed == (1 if mode == "split" else 3)
    numbers = batch.env_outputs.observation[:-1, :, 0].numpy()
    masks = 1 - batch.env_outputs.abandoned[1:].numpy()
    assert masks.min() == 0
    mask_of = dict(zip(numbers.ravel(), masks.ravel(), strict=True))
    orders = []
    for i in range(0, 12, 4):
        epoch = recorder.observations[i : i + 4]
        assert all(part.shape == (1, T * B // 4) for part in epoch)
        seen = np.concatenate(epoch, axis=1)[0]
        np.testing.assert_array_equal(np.sort(seen), numbers.ravel())
        given = np.concatenate(recorder.masks[i : i + 4], axis=1)[0]
        np.testing.assert_array_equal(given, [mask_of[number] for number in seen])
        orders.append(tuple(seen))
    assert len(set(orders)) == 3


def run(mode, looped):
    """(weights, metrics) of a training step within a tf.function."""
    loss = make_loss()
    minimize = make_minimize(loss)
    settings = MinibatchSettings(mode, 2, 2)
    step = tf.function(
        lambda batch: minibatches.train(loss, batch, minimize, settings), autograph=False
    )
    with mock.patch.object(minibatches, "_can_loop", return_value=looped):
        result = step(make_batch())
    weights = [v.numpy() for v in variables.trainable_variables(loss)]
    return weights, {k: v.numpy() for k, v in result.metrics.items()}


@pytest.mark.parametrize("mode", BATCH_MODES)
def test_loop_and_copies_agree(mode, monkeypatch):
    """Guards the order of reads and writes within the loop, and the means over its steps."""
    # Another permutation than the identity, the same for both.
    monkeypatch.setattr(tf.random, "shuffle", lambda rows: rows[::-1])
    weights, metrics = run(mode, looped=False)
    looped_weights, looped_metrics = run(mode, looped=True)
    assert np.abs(weights[0] - [[0.5, -0.5, 0.1]]).min() > 1e-3
    for one, other in zip(weights, looped_weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    assert looped_metrics == pytest.approx(metrics, rel=1e-3, abs=1e-6)
    assert {"loss", "gradient_norm", "skipped_steps", "losses/policy", "policy/entropy"} <= set(
        metrics
    )


def test_one_minibatch_of_transitions_is_that_of_unrolls():
    """Guards the masks of split batches: nothing but the form of the batch differs."""
    losses, slopes = [], []
    for mode in ("repeat", "split"):
        loss = make_loss()
        minimize = make_minimize(loss, tf.keras.optimizers.SGD(1.0))
        result = minibatches.train(loss, make_batch(), minimize, MinibatchSettings(mode))
        losses.append(float(result.loss))
        slopes.append(loss._agent.policy.numpy())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    np.testing.assert_allclose(*slopes, rtol=1e-4)


def test_rewards_to_learn_from_reach_the_loss():
    """In both forms of a batch: twice the reward is another loss, as for the environment's."""
    for mode in ("repeat", "split"):
        results = []
        batch = make_batch()
        doubled = 2 * batch.env_outputs.reward
        for unrolls, rewards in (
            (batch, doubled),
            (batch._replace(env_outputs=batch.env_outputs._replace(reward=doubled)), None),
            (batch, None),
        ):
            loss = make_loss()
            settings = MinibatchSettings(mode)
            result = minibatches.train(loss, unrolls, make_minimize(loss), settings, rewards)
            results.append(float(result.loss))
        assert results[0] == pytest.approx(results[1], rel=1e-5)
        assert results[0] != pytest.approx(results[2], rel=1e-2)


class Steps(tf.Module, LoggingModule):
    """A loss whose value comes from the observations of the minibatch."""

    def __init__(self):
        super().__init__()
        self.weight = tf.Variable(1.0)

    def __call__(self, state, actions, env, *more):
        mean = tf.reduce_mean(env.observation)
        self.log("observation", mean)
        return self.weight * mean


@pytest.mark.parametrize("bad", [1, 3])
def test_skipped_gradient_steps_are_a_share(bad):
    """Guards weights and the end of a run: it ends only when every gradient step was skipped."""
    batch = make_batch()
    observations = batch.env_outputs.observation.numpy()
    observations[0, : 2 * bad] = np.nan
    batch = batch._replace(env_outputs=batch.env_outputs._replace(observation=observations))
    loss = Steps()
    minimize = make_minimize(loss, tf.keras.optimizers.SGD(0.1))
    step = tf.function(
        lambda: minibatches.train(loss, batch, minimize, MinibatchSettings("repeat", 7, 3)),
        autograph=False,
    )
    skipped = SkippedSteps()
    for _ in range(3):
        metrics = step().metrics
        skipped.add(metrics["skipped_steps"])
    # Its mean over 21 steps must be 1 exactly, or the run would not end.
    assert float(metrics["skipped_steps"]) == pytest.approx(bad / 3)
    assert skipped.check() == (3 if bad == 3 else 0)
    assert np.isnan(metrics["observation"]) and np.isfinite(loss.weight)
    assert (float(loss.weight) == 1.0) == (bad == 3)


def test_sizes_that_do_not_divide():
    """Guards the message for a batch that divides, but not its part on each of several devices."""
    with pytest.raises(UserError, match=r"6 unrolls \(on one .*6 / 4 = 1\.50\. .*=3 or 6; "):
        record(make_batch(), "repeat", 1, 4)


def test_recurrent_states_cannot_be_split():
    with pytest.raises(UserError, match="--batch_mode=repeat and --batch_mode=shuffle keep them"):
        record(make_batch(state=(tf.range(B),)), "split", 1, 1)


def test_result_of_steps_that_log_nothing():
    """Guards the loop around a loss without metrics."""
    result = minibatches.mean_of_steps(lambda i: StepResult(tf.cast(i, tf.float32), {}), 5)
    assert float(result.loss) == 2.0 and result.metrics == {}


def old_arguments(loss, optimizer, mode, batches):
    strategy, logger = tf.distribute.get_strategy(), ProgressLogger()
    return loss, mode, strategy, B, T, batches, 1.0, optimizer, logger


@pytest.mark.parametrize("mode", ["repeat", "split"])
def test_old_names(mode, monkeypatch):
    """A training step of one epoch, whole and in its parts, is that of `train`."""
    monkeypatch.setattr(tf.random, "shuffle", lambda rows: rows[::-1])
    weights, losses, sessions = [], [], []
    for way in ("train", "step", "parts"):
        loss, optimizer = make_loss(), tf.keras.optimizers.Adam(0.01)
        batch = make_batch()
        args = tuple(batch._replace(env_outputs=tuple(batch.env_outputs)))
        if way == "train":
            minimize = make_minimize(loss, optimizer)
            settings = MinibatchSettings(mode, 1, 2)
            mean_loss, session, _ = minibatches.train(loss, batch, minimize, settings)
        elif way == "step":
            first, *rest = old_arguments(loss, optimizer, mode, 2)
            mean_loss, session = old_names.ppo_training_step(1, first, args, *rest)
        else:
            if mode == "split":
                args = old_names.compute_advantages_and_split(loss, args)
            first, *rest = old_arguments(loss, optimizer, mode, 2)
            mean_loss, session = old_names.single_epoch(first, args, *rest)
        weights.append(loss._agent.policy.numpy())
        losses.append(float(mean_loss))
        sessions.append({key: float(value) for key, value in session.items()})
    for other in (1, 2):
        np.testing.assert_allclose(weights[0], weights[other], rtol=1e-5)
        assert losses[other] == pytest.approx(losses[0], rel=1e-5)
        assert sessions[other] == pytest.approx(sessions[0], rel=1e-4, abs=1e-7)


def test_stacked_frames_are_shuffled_with_their_transitions():
    """Guards training on transitions of images: the stacks are those that whole unrolls have, also
    after the start of an episode; advantages and losses are the same. An LSTM cannot be split."""
    rng = np.random.default_rng(0)
    batch = make_batch()
    images = tf.constant(rng.integers(0, 256, (T + 1, B, 84, 84, 1)), tf.uint8)
    space = spaces.Box(0, 255, (84, 84, 1), np.uint8)
    network = create_network(space, DISTRIBUTION, ConvNetworkConfig(stack_size=3))
    past = tf.cast(tf.random.uniform([B, 21, 21, 32], maxval=256, dtype=tf.int32), tf.uint8)
    state = network.initial_state(B)._replace(frame_stacking_state=(past,))
    env_outputs = batch.env_outputs._replace(observation=images)
    batch = batch._replace(agent_state=state, env_outputs=env_outputs)
    whole, _ = network(batch.prev_actions, env_outputs, state, unroll=True)
    loss = make_loss(network)
    expected = loss.compute_advantages(*batch)
    stacked = minibatches.with_stacks(network, batch)
    assert stacked.agent_state == ()
    arguments = minibatches.split_into_transitions(loss, stacked)
    order = rng.permutation(T * B)
    _, actions, steps, _, targets, advantages, _ = minibatches._take(arguments, order)
    split, _ = network(actions, steps, (), unroll=True)
    for there, here in (
        (whole.baseline[:-1], split.baseline),
        (expected[0], targets),
        (expected[1], advantages),
    ):
        np.testing.assert_allclose(tf.reshape(there, [-1]).numpy()[order], here[0], rtol=1e-5)
    config = ConvNetworkConfig(stack_size=3, lstm_sizes=(4,))
    recurrent = create_network(space, DISTRIBUTION, config)
    batch = batch._replace(agent_state=recurrent.initial_state(B))
    with pytest.raises(UserError, match="recurrent state"):
        minibatches.split_into_transitions(
            make_loss(recurrent), minibatches.with_stacks(recurrent, batch)
        )
