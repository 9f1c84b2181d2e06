"""The V-trace agent as the learner sees it."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.agents.vtrace.learner import VTrace
from seed_rl.agents.vtrace.networks import AgentOutput
from seed_rl.common import variables
from seed_rl.common.algorithm import Unroll
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.training import TrainingStep
from seed_rl.common.types import EnvOutput

SHAPE = (4, 5)


class TableAgent(tf.Module):
    """A 'network' whose outputs are its weights."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.policy_logits = tf.Variable(rng.normal(size=(*SHAPE, 3)).astype(np.float32))
        self.baseline = tf.Variable(rng.normal(size=SHAPE).astype(np.float32))

    def __call__(self, prev_actions, env_outputs, agent_state, unroll, is_training):
        return AgentOutput(None, self.policy_logits + 0, self.baseline + 0), agent_state


def batch():
    rng = np.random.default_rng(1)
    false = np.zeros(SHAPE, np.bool_)
    reward = rng.normal(size=SHAPE).astype(np.float32)
    env_outputs = EnvOutput(reward, false, np.zeros(SHAPE), false, np.zeros(SHAPE, np.int32))
    actions = rng.integers(0, 3, SHAPE).astype(np.int32)
    behaviour = AgentOutput(actions, rng.normal(size=(*SHAPE, 3)).astype(np.float32), reward)
    unroll = Unroll((), actions, env_outputs, behaviour)
    return tf.nest.map_structure(tf.constant, unroll)


def test_an_adjusted_entropy_cost_does_not_clip_the_network():
    """Guards the network's step size: a large cost has a gradient thousands of times larger."""
    config = VTraceConfig(entropy_cost=0.1, target_entropy=0.2, entropy_cost_adjustment_speed=1e4)
    distribution = categorical_distribution(3, tf.int32)
    algorithm = VTrace(config, TableAgent, distribution, num_envs=5)
    network = variables.trainable_variables(algorithm.agent)
    (multiplier,) = algorithm.clipped_apart()
    with tf.GradientTape() as tape:
        loss = algorithm.loss(batch()).loss
    gradients = tape.gradient(loss, [*network, multiplier])
    norm = float(tf.linalg.global_norm(gradients[:-1]))
    assert abs(float(gradients[-1])) > 100 * norm
    expected = [w.numpy() - 0.1 * g.numpy() for w, g in zip(network, gradients[:-1], strict=True)]
    before = float(multiplier)

    optimizer = tf.keras.optimizers.SGD(0.1)
    step = TrainingStep(algorithm, optimizer, tf.distribute.get_strategy(), clip_norm=2 * norm)
    one = iter(tf.data.Dataset.from_tensors(0).map(lambda _: batch()))
    metrics, _ = step(one)
    assert float(metrics["gradient_norm"]) == pytest.approx(norm, rel=1e-5)
    for weight, value in zip(network, expected, strict=True):
        np.testing.assert_allclose(weight, value, rtol=1e-5, atol=1e-7)
    # The cost is trained too, by a gradient within the same bound: the entropy is above its target.
    assert float(multiplier) == pytest.approx(before - 0.1 * 2 * norm, rel=1e-4)
