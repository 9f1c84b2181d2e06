"""What of a Gymnasium observation reaches the network, and in which form."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.common.acting.spaces import is_image
from seed_rl.common.checkpoints.checkpoints import load_weights
from seed_rl.common.errors import UserError
from seed_rl.common.networks.space_encoder import SpaceEncoder


@pytest.mark.parametrize(
    "space, expected",
    [
        (spaces.Box(0, 255, (84, 84, 1), np.uint8), True),
        (spaces.Box(0, 255, (84, 84), np.uint8), True),
        (spaces.Box(0, 1, (64, 64, 3), np.float32), True),
        (spaces.Box(0, 1, (64, 64), np.float32), False),  # A matrix.
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), False),  # A grid world's view.
        (spaces.Box(0, 255, (128,), np.uint8), False),  # Atari's memory.
        (spaces.Discrete(4), False),
    ],
    ids=str,
)
def test_is_image(space, expected):
    assert is_image(space) is expected


def test_vector_of_everything_that_is_no_image():
    """With no dense layers, the features are the vector itself, keys in sorted order."""
    space = spaces.Dict(
        a=spaces.Box(0, 255, (2,), np.uint8),
        b=spaces.Box(-9, 9, (1, 2), np.float64),
        c=spaces.Discrete(3, start=5),
        d=spaces.MultiDiscrete([2, 3]),
        e=spaces.MultiBinary(2),
    )
    encoder = SpaceEncoder(space, mlp_sizes=())
    observation = {
        "a": np.array([[255, 51]], np.uint8),
        "b": np.array([[[1.5, -2.5]]], np.float32),
        "c": np.array([6]),
        "d": np.array([[1, 0]]),
        "e": np.array([[0, 1]], np.int8),
    }
    expected = [[1.0, 0.2, 1.5, -2.5, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1]]
    features, state = encoder(observation, (), tf.constant([True]))
    np.testing.assert_allclose(features, expected, rtol=1e-6)
    assert state == ()
    unrolled = tf.nest.map_structure(lambda x: np.stack([x, x]), observation)
    features, _ = encoder(unrolled, (), tf.constant([[True], [False]]), unroll=True)
    np.testing.assert_allclose(features, [expected, expected], rtol=1e-6)


def test_each_image_has_its_own_torso_and_frames():
    image = spaces.Box(0, 255, (40, 40, 1), np.uint8)
    space = spaces.Tuple([image, spaces.Discrete(3), image])
    encoder = SpaceEncoder(space, mlp_sizes=[8], torso="impala_shallow", stack_size=2)
    state = encoder.initial_state(1)
    assert len(state) == 2
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 256, (2, 1, 40, 40, 1)).astype(np.uint8)
    done = tf.constant([True])
    features, new_state = encoder((one, np.array([1]), other), state, done)
    assert features.shape == (1, 256 + 256 + 8)
    assert not np.array_equal(new_state[0], new_state[1])
    swapped, _ = encoder((other, np.array([1]), one), state, done)
    assert not np.allclose(features[:, :256], swapped[:, 256:512])


@pytest.mark.parametrize(
    "activation, function", [("relu", lambda x: np.maximum(x, 0)), ("tanh", np.tanh)]
)
def test_activation_of_the_dense_layers(activation, function):
    """Guards --mlp_activation: every layer has it, and signals keep their size through eight."""
    tf.random.set_seed(0)
    space = spaces.Box(-9, 9, (64,), np.float32)
    encoder = SpaceEncoder(space, mlp_sizes=[64] * 8, mlp_activation=activation)
    x = np.random.default_rng(0).normal(size=(100, 64)).astype(np.float32)
    features, _ = encoder(x, (), np.zeros(100, np.bool_))
    expected = x
    for layer in encoder.submodules:
        expected = function(expected @ layer.kernel.numpy() + layer.bias.numpy())
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)
    assert 0.1 < np.std(features) < 3


def test_weights_of_another_activation_are_refused(tmp_path):
    """Guards a resumed run from a changed --mlp_activation, which no shape would show."""

    def agent(activation):
        encoder = SpaceEncoder(spaces.Box(-9, 9, (4,), np.float32), (3,), mlp_activation=activation)
        encoder(np.zeros([1, 4], np.float32), (), np.zeros(1, np.bool_))
        return encoder

    saved, same, other = agent("relu"), agent("relu"), agent("tanh")
    prefix = tf.train.Checkpoint(agent=saved).write(str(tmp_path / "weights"))
    load_weights(prefix, same)
    np.testing.assert_array_equal(same.variables[0], saved.variables[0])
    with pytest.raises(UserError, match="do not fit this agent .*_mlp"):
        load_weights(prefix, other)
