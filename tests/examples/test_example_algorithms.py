"""What the example algorithms compute, against NumPy."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from gymnasium import spaces

from examples import a2c, ppo, rnd_r2d2, rnd_vtrace
from examples.rnd import RND
from examples.rnd_config import RNDConfig
from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.errors import UserError
from seed_rl.common.inference.env_specs import specs
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.training import TrainingStep
from seed_rl.common.networks.actor_critic import AgentOutput, MLPandLSTM
from seed_rl.common.replay import ReplayConfig
from seed_rl.common.types import EnvOutput, Unroll
from seed_rl.testing.envs import LifeStepEnv
from tests.helpers.contexts import context
from tests.helpers.in_process import Run

STEPS, BATCH, ACTIONS = 6, 4, 3
SPECS = specs(spaces.Box(-1, 1, (2,)), spaces.Discrete(ACTIONS))


@pytest.fixture(autouse=True)
def parsed_flags():
    """As in a program whose command line is empty."""
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["test"])


def make(algorithm, config):
    tf.keras.utils.set_random_seed(3)
    distribution = categorical_distribution(ACTIONS, tf.int64)
    return algorithm(
        config,
        context(
            lambda: MLPandLSTM(distribution, (8,), ()),
            distribution,
            spaces.Box(-1, 1, (2,)),
            spaces.Discrete(ACTIONS),
            num_envs=4,
        ),
    )


def unrolls(algorithm, seed=0):
    """A batch of an arbitrary behaviour policy, with ends and one abandoned episode."""
    rng = np.random.default_rng(seed)
    shape = [STEPS + 1, BATCH]
    done = rng.random(shape) < 0.2
    abandoned = np.zeros(shape, bool)
    done[3, 1] = abandoned[3, 1] = True
    outputs = EnvOutput(
        rng.normal(size=shape).astype(np.float32),
        done,
        rng.normal(size=[*shape, 2]).astype(np.float32),
        abandoned,
        np.zeros(shape, np.int32),
    )
    behaviour = AgentOutput(
        rng.integers(ACTIONS, size=shape),
        rng.normal(size=[*shape, ACTIONS]).astype(np.float32),
        np.zeros(shape, np.float32),
    )
    actions = rng.integers(ACTIONS, size=shape)
    batch = Unroll(algorithm.network.initial_state(BATCH), actions, outputs, behaviour)
    return tf.nest.map_structure(tf.convert_to_tensor, batch)


def values(algorithm, batch):
    state, actions, outputs, _ = batch
    learned, _ = algorithm.network(actions, outputs, state, unroll=True, is_training=True)
    return learned.policy_logits.numpy(), learned.baseline.numpy()


def discounted(batch, gamma, baseline, lambda_):
    """(targets, mask) [time, batch], one environment and one step after the other."""
    outputs = tf.nest.map_structure(lambda t: t.numpy(), batch.env_outputs)
    targets = np.zeros([STEPS, BATCH])
    mask = np.ones([STEPS, BATCH])
    for b in range(BATCH):
        following = baseline[STEPS, b]
        for t in reversed(range(STEPS)):
            if outputs.abandoned[t + 1, b]:
                following, mask[t, b] = baseline[t, b], 0.0
            else:
                gamma_t = 0.0 if outputs.done[t + 1, b] else gamma
                mixed = lambda_ * following + (1 - lambda_) * baseline[t + 1, b]
                following = outputs.reward[t + 1, b] + gamma_t * mixed
            targets[t, b] = following
    return targets, mask


def softmax(logits):
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_a2c_loss():
    """Guards returns that end with episodes, bootstrap where these are cut off, and the mask."""
    config = VTraceConfig(discounting=0.9, entropy_cost=0.3, baseline_cost=0.7)
    algorithm = make(a2c.algorithm(), config)
    batch = unrolls(algorithm)
    logits, baseline = values(algorithm, batch)
    returns, mask = discounted(batch, 0.9, baseline, 1.0)
    policy = softmax(logits[:-1])
    taken = np.take_along_axis(policy, batch.agent_outputs.action.numpy()[:-1, :, None], -1)[..., 0]
    errors = returns - baseline[:-1]
    expected = (
        -np.log(taken) * errors + 0.7 * 0.5 * errors**2 + 0.3 * (policy * np.log(policy)).sum(-1)
    )
    expected = (expected * mask).sum() / mask.sum()
    assert float(algorithm.loss(batch).loss) == pytest.approx(expected, rel=1e-4)


def test_ppo_advantages():
    """Guards generalized advantage estimation across ends and abandoned episodes."""
    config = VTraceConfig(discounting=0.9, lambda_=0.8)
    algorithm = make(ppo.algorithm(), config)
    batch = unrolls(algorithm)
    targets, mask = discounted(batch, 0.9, values(algorithm, batch)[1], 0.8)
    advantages = targets - values(algorithm, batch)[1][:-1]
    mean = (advantages * mask).sum() / mask.sum()
    deviation = np.sqrt((((advantages - mean) ** 2) * mask).sum() / mask.sum())
    ours = algorithm.advantages(batch)
    np.testing.assert_allclose(ours[1], targets, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        ours[0].numpy()[mask > 0], ((advantages - mean) / deviation)[mask > 0], rtol=1e-3, atol=1e-4
    )


@pytest.mark.slow
def test_ppo_makes_all_its_gradient_steps_on_one_batch():
    """Guards epochs and minibatches, and that the ratio is one of the new to the acting policy."""
    algorithm = make(ppo.algorithm(), VTraceConfig(baseline_cost=0.0, entropy_cost=0.0))
    batch = unrolls(algorithm)
    actions = batch.agent_outputs.action.numpy()[:-1, :, None]
    behaviour = softmax(batch.agent_outputs.policy_logits.numpy()[:-1])
    ratio = np.take_along_axis(softmax(values(algorithm, batch)[0][:-1]), actions, -1)[..., 0]
    ratio = ratio / np.take_along_axis(behaviour, actions, -1)[..., 0]
    advantages, targets = algorithm.advantages(batch)
    mask = 1.0 - batch.env_outputs.abandoned.numpy()[1:]
    clipped = np.minimum(ratio * advantages, np.clip(ratio, 0.8, 1.2) * advantages)
    loss = algorithm.ppo_loss(batch, advantages, targets).loss
    assert float(loss) == pytest.approx(-(clipped * mask).sum() / mask.sum(), rel=1e-3, abs=1e-5)

    strategy = tf.distribute.get_strategy()
    optimizer = tf.keras.optimizers.Adam(1e-3)
    step = TrainingStep(algorithm, optimizer, strategy, None)
    metrics, _ = step.run(iter(tf.data.Dataset.from_tensors(batch)))
    assert int(optimizer.iterations) == 16 == algorithm.updates_per_batch
    assert np.isfinite(float(metrics["loss"])) and float(metrics["skipped_steps"]) == 0


def test_ppo_says_what_cannot_be_split():
    algorithm = make(ppo.algorithm(), VTraceConfig())
    algorithm.ppo = dataclasses.replace(algorithm.ppo, minibatches=3)
    with pytest.raises(UserError, match="4 unrolls .* --minibatches=3"):
        algorithm.update(unrolls(algorithm), None)


def test_bonus_is_for_what_was_not_seen():
    """Guards sign and place of the bonus: large for a new observation, none after a reset."""
    tf.keras.utils.set_random_seed(0)
    rnd = RND(RNDConfig(bonus=1.0), SPECS)
    known, new = tf.zeros([5, 2, 2]), 5.0 * tf.ones([5, 2, 2])
    outputs = EnvOutput(
        tf.ones([5, 2]), tf.zeros([5, 2], tf.bool), known, tf.zeros([5, 2], bool), 0
    )
    optimizer = tf.keras.optimizers.Adam(0.01)
    for _ in range(100):
        with tf.GradientTape() as tape:
            loss = rnd.loss(outputs)
        optimizer.apply(tape.gradient(loss, rnd.trainable()), rnd.trainable())
    assert 0 <= float(tf.reduce_max(rnd.bonus(outputs))) < 1e-2
    surprising = outputs._replace(observation=new, done=tf.constant([[True, False]] * 5))
    bonus = rnd.bonus(surprising).numpy()
    assert (bonus[:, 1] > 0.1).all() and (bonus[:, 0] == 0).all()


def test_images_earn_no_larger_a_bonus_than_vectors():
    """Guards the scale of inputs: at 0 to 255, bonus and gradients would drown everything else."""
    tf.keras.utils.set_random_seed(0)
    image = tf.TensorSpec([24, 24, 1], tf.uint8)
    rnd = RND(RNDConfig(), SPECS._replace(env_output=SPECS.env_output._replace(observation=image)))
    noise = np.random.default_rng(0).integers(256, size=[3, 2, 24, 24, 1]).astype(np.uint8)
    never = tf.zeros([3, 2], tf.bool)
    outputs = EnvOutput(tf.zeros([3, 2]), never, tf.constant(noise), never, 0)
    assert 0 < float(tf.reduce_max(rnd.bonus(outputs))) < 1


def spy(monkeypatch, algorithm):
    """Rewards that the network sees, and those that the loss learns from."""
    seen = []
    network = type(algorithm.network).__call__

    def call(self, prev_actions, env_outputs, core_state, unroll=False, is_training=False):
        seen.append(env_outputs.reward)
        return network(self, prev_actions, env_outputs, core_state, unroll, is_training)

    monkeypatch.setattr(type(algorithm.network), "__call__", call)
    return seen


def test_the_bonus_is_learned_from_and_not_shown_to_the_network(monkeypatch):
    """Guards that training runs the network on the inputs that it acted on."""
    algorithm = make(rnd_vtrace.algorithm(), VTraceConfig(entropy_cost=0.0))
    batch = unrolls(algorithm)
    seen = spy(monkeypatch, algorithm)
    loss = float(algorithm.loss(batch).loss - algorithm.rnd.loss(batch.env_outputs))
    np.testing.assert_array_equal(seen[0], batch.env_outputs.reward)
    rewards = batch.env_outputs.reward + algorithm.rnd.bonus(batch.env_outputs)
    assert not np.allclose(rewards, batch.env_outputs.reward, rtol=0, atol=1e-5)
    plain = make(VTrace, VTraceConfig(entropy_cost=0.0))
    expected = plain.loss(
        batch._replace(env_outputs=batch.env_outputs._replace(reward=rewards))
    ).loss  # MLPandLSTM without an LSTM does not read rewards.
    assert loss == pytest.approx(float(expected), rel=1e-4)


def test_initial_priorities_count_the_bonus(monkeypatch):
    """Guards the seam that lets intrinsic rewards reach a replay before its first batch."""
    config = R2D2Config(burn_in=1, n_steps=2)
    replay = ReplayConfig(replay_buffer_size=100, replay_buffer_min_size=4)
    monkeypatch.setattr("tests.helpers.in_process.R2D2", rnd_r2d2.algorithm())
    with Run(lambda: LifeStepEnv(5), config, replay) as run:
        algorithm = run.algorithm
        actions = run.step(None, reset=True)
        for _ in range(6):
            actions = run.step(actions)
        stored = run.store.dequeue(4)
        batch = Unroll(stored.agent_state, *stored.steps)
        rewards = batch.env_outputs.reward + algorithm.rnd.bonus(batch.env_outputs)
        with_bonus = batch._replace(env_outputs=batch.env_outputs._replace(reward=rewards))
        ours = algorithm.initial_priorities(batch)
        algorithm.learning_rewards = Algorithm.learning_rewards.__get__(algorithm)
        expected = algorithm.initial_priorities(with_bonus)
        np.testing.assert_allclose(ours, expected, rtol=1e-5)
        assert not np.allclose(ours, algorithm.initial_priorities(batch))
