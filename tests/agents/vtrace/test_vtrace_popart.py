"""V-trace with --popart: the same targets in other units, values preserved, and large rewards."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.agents.vtrace.networks import AgentOutput
from seed_rl.common.learner import variables
from seed_rl.common.learner.training import TrainingStep
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.returns.transitions import transitions
from seed_rl.common.returns.vtrace import from_importance_weights
from seed_rl.common.types import EnvOutput, Unroll
from tests.helpers.contexts import context

STATES, ACTIONS, STEPS, BATCH, GAMMA, REWARD = 5, 2, 20, 3, 0.9, 1000.0
DISTRIBUTION = categorical_distribution(ACTIONS, tf.int32)


class Table(tf.Module):
    """A policy and a value for each state, which is the observation."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.logits = tf.Variable(rng.normal(size=(STATES, ACTIONS)).astype(np.float32))
        self.baseline = tf.Variable(rng.normal(size=STATES).astype(np.float32))

    def __call__(self, prev_actions, env_outputs, agent_state, unroll=False, is_training=False):
        state = env_outputs.observation
        logits, baseline = tf.gather(self.logits, state), tf.gather(self.baseline, state)
        return AgentOutput(DISTRIBUTION.sample(logits), logits, baseline), agent_state


def make(**options):
    config = VTraceConfig(discounting=GAMMA, entropy_cost=0.0, **options)
    return VTrace(config, context(Table, DISTRIBUTION, num_envs=BATCH))


def walk(abandoned=False):
    """Unrolls of a walk through all states, with a large reward at its end, again and again.

    With `abandoned`, some walks are cut instead of ending.
    """
    shape = (STEPS + 1, BATCH)
    state = (np.arange(STEPS + 1)[:, None] + np.arange(BATCH)) % STATES
    done = state == 0
    cut = done & abandoned & (np.arange(STEPS + 1) % 2 == 0)[:, None]
    reward = np.where(done & ~cut, REWARD, 0.0).astype(np.float32)
    actions = np.random.default_rng(1).integers(0, ACTIONS, shape).astype(np.int32)
    env_outputs = EnvOutput(reward, done, state.astype(np.int32), cut, np.zeros(shape, np.int32))
    outputs = AgentOutput(
        actions, np.zeros((*shape, ACTIONS), np.float32), np.zeros(shape, np.float32)
    )
    return tf.nest.map_structure(tf.constant, Unroll((), actions, env_outputs, outputs))


def values(algorithm):
    """The value of each state, in units of rewards."""
    baseline, popart = algorithm.network.baseline, algorithm._popart
    if popart is None:
        return baseline.numpy()
    return popart.unnormalize_prediction(popart.correct_prediction(baseline)).numpy()


def train(algorithm, batch, optimizer, steps):
    step = TrainingStep(algorithm, optimizer, tf.distribute.get_strategy(), clip_norm=None)
    batches = iter(tf.data.Dataset.from_tensors(0).repeat().map(lambda _: batch))
    return [step.run(batches)[0] for _ in range(steps)]


def test_losses_are_those_of_the_same_targets_in_other_units():
    """Against NumPy's statistics of the plain agent's targets, real transitions alone."""
    batch, beta = walk(abandoned=True), 0.3
    plain, popart = make(), make(popart=True, popart_beta=beta)
    expected, actual = plain.loss(batch).metrics, popart.loss(batch).metrics

    learned, _ = plain.network((), batch.env_outputs, ())
    steps = transitions(batch.env_outputs, GAMMA)
    action = batch.agent_outputs.action[:-1]
    targets = (
        from_importance_weights(
            DISTRIBUTION.log_prob(learned.policy_logits[:-1], action),
            DISTRIBUTION.log_prob(batch.agent_outputs.policy_logits[:-1], action),
            steps.discount_t,
            steps.bootstrapping_rewards(learned.baseline[:-1]),
            learned.baseline[:-1],
            learned.baseline[-1],
        )
        .vs.numpy()[steps.mask.numpy() > 0]
        .astype(np.float64)
    )
    assert len(targets) < STEPS * BATCH
    mean = beta * targets.mean()
    std = np.sqrt((1 - beta) + beta * np.square(targets).mean() - mean**2)
    assert std > 50
    assert float(popart._popart.normalize_target(mean + std)) == pytest.approx(1.0, rel=1e-4)
    for name, scale in (("losses/policy", 1 / std), ("losses/baseline", 1 / std**2)):
        assert float(actual[name]) == pytest.approx(float(expected[name]) * scale, rel=1e-3)
    for name in ("value/target", "value/baseline", "value/abs_error", "policy/advantage"):
        assert float(actual[name]) == pytest.approx(float(expected[name]), rel=1e-4)


def test_a_training_step_moves_the_statistics_and_not_the_values():
    algorithm = make(popart=True, popart_beta=0.5)
    before = values(algorithm)
    train(algorithm, walk(), tf.keras.optimizers.SGD(0.0), 3)
    mean, std = algorithm._popart._tracker.get_mean_std()
    assert float(mean[0]) > 100 and float(std[0]) > 100
    np.testing.assert_allclose(values(algorithm), before, rtol=1e-3, atol=1e-3)


def test_large_rewards_are_learned_with_popart_and_not_without():
    expected = REWARD * GAMMA ** np.arange(STATES - 1, -1, -1)
    errors = {}
    for name in ("plain", "popart"):
        algorithm = make(popart=name == "popart", popart_beta=0.05)
        train(algorithm, walk(), tf.keras.optimizers.Adam(0.02), 200)
        errors[name] = np.abs(values(algorithm) - expected).max() / REWARD
    assert errors["popart"] < 0.05
    assert errors["plain"] > 0.5


def test_popart_is_trained_and_saved(tmp_path):
    algorithm, restored = make(popart=True), make(popart=True)
    trained = {id(variable) for variable in algorithm.trainable_variables()}
    assert {id(algorithm._popart.scale), id(algorithm._popart.shift)} <= trained
    assert len(trained) == len(variables.trainable_variables(algorithm.network)) + 2
    train(algorithm, walk(), tf.keras.optimizers.SGD(0.1), 2)

    def checkpoint(a):
        return tf.train.Checkpoint(agent=a.network, **a.checkpointables())

    path = checkpoint(algorithm).write(str(tmp_path / "checkpoint"))
    checkpoint(restored).read(path).assert_consumed()
    np.testing.assert_array_equal(values(restored), values(algorithm))


def test_without_it_there_is_nothing_to_train_or_save():
    """Guards runs that were saved before the option existed."""
    algorithm = make()
    assert list(algorithm.checkpointables()) == ["entropy_cost"]
    assert len(algorithm.trainable_variables()) == 2


def test_statistics_are_of_trusted_steps(monkeypatch):
    """Guards the scale of values against replayed steps outside of the trust region."""
    seen = []
    update = PopArt.update_normalization_statistics
    monkeypatch.setattr(
        PopArt,
        "update_normalization_statistics",
        lambda self, data: (seen.append(data.numpy()), update(self, data)),
    )
    trusted = float(make(popart=True, trust_region=0.01).loss(walk()).metrics["policy/trusted"])
    assert 0.1 < trusted < 0.9
    assert np.isfinite(seen[0]).mean() == pytest.approx(trusted)
