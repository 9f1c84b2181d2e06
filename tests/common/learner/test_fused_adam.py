"""FusedAdam makes the same weights as Keras's Adam, and continues its checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.learner.fused_adam import FusedAdam

SHAPES = [(3, 2), (2,), ()]


def create(optimizer_class, rate=0.1):
    """An optimizer with options other than the defaults, and its variables, in a checkpoint."""
    optimizer = optimizer_class(rate, beta_1=0.8, beta_2=0.95, epsilon=1e-3)
    weights = [tf.Variable(tf.ones(shape)) for shape in SHAPES]
    optimizer.build(weights)
    return tf.train.Checkpoint(optimizer=optimizer, weights=weights)


def train(agent, steps, jit=False):
    """Weights <float32>[...] after each gradient step, of variables with the same gradients."""

    @tf.function(jit_compile=jit)
    def step(gradients):
        agent.optimizer.apply(gradients, agent.weights)

    history = []
    for seed in steps:
        generator = np.random.default_rng(seed)
        step([tf.constant(generator.normal(size=s), tf.float32) for s in SHAPES])
        history.append(np.concatenate([w.numpy().ravel() for w in agent.weights]))
    return np.array(history)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("decays", [False, True])
def test_equals_keras(jit, decays):
    """Guards moments, bias correction, epsilon and learning rate, also compiled as in `--jit`."""
    rate = tf.keras.optimizers.schedules.PolynomialDecay(0.1, 15, 0.0) if decays else 0.1
    ours, keras = create(FusedAdam, rate), create(tf.keras.optimizers.Adam, rate)
    expected = train(keras, range(10))
    np.testing.assert_allclose(train(ours, range(10), jit), expected, rtol=1e-5, atol=1e-6)
    assert np.ptp(expected, axis=0).min() > 0.05


def test_continues_a_checkpoint_of_keras(tmp_path):
    """Guards runs that were started before the optimizer was fused."""
    keras, ours = create(tf.keras.optimizers.Adam), create(FusedAdam)
    train(keras, range(4))
    ours.read(keras.write(str(tmp_path / "checkpoint"))).assert_consumed()
    expected = train(keras, range(4, 8))
    np.testing.assert_allclose(train(ours, range(4, 8)), expected, rtol=1e-5, atol=1e-6)
