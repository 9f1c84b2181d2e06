"""Encoders: layer arithmetic, frame stacking in blocks, torsos as in the papers."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.networks import encoders
from seed_rl.common.networks.layers import Conv2D, Dense, glorot, orthogonal, variance_scaling


def random_images(seed, *shape):
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def num_weights(module):
    return sum(int(tf.size(v)) for v in module.trainable_variables)


@pytest.mark.parametrize(
    "torso, stack_size, expected",
    [
        # 8x8x4x32, 4x4x32x64, 3x3x64x64, 3136x512 and biases (Mnih et al. 2015).
        ("nature", 4, 8192 + 32768 + 36864 + 1605632 + 32 + 64 + 64 + 512),
        ("impala_shallow", 4, 4096 + 8192 + 2592 * 256 + 16 + 32 + 256),
        # Sections of 1 + 4 convolutions of 3x3 with 16, 32, 32 channels; 11x11x32 to 256.
        (
            "impala_deep",
            4,
            9 * (4 * 16 + 4 * 16 * 16)
            + 9 * (16 * 32 + 4 * 32 * 32)
            + 9 * (32 * 32 + 4 * 32 * 32)
            + 5 * (16 + 32 + 32)
            + 11 * 11 * 32 * 256
            + 256,
        ),
    ],
)
def test_torsos_have_the_papers_weights(torso, stack_size, expected):
    encoder = encoders.ImageEncoder((84, 84, 1), torso, stack_size)
    images = random_images(0, 2, 84, 84, 1)
    features, _ = encoder(images, encoder.initial_state(2), tf.constant([True, False]))
    assert features.shape == (2, encoder.num_features)
    assert num_weights(encoder) == expected


@pytest.mark.parametrize("shape", [(84, 84, 1), (72, 96, 2), (84, 84)])
def test_blocks_are_the_same_convolution(shape):
    """Stacking blocks instead of pixels must not change what the network computes."""
    stack_size, frame = 4, (*shape, 1)[:3]
    encoder = encoders.ImageEncoder(shape, "nature", stack_size)
    images = random_images(1, 6, 2, *shape)
    done = np.zeros((6, 2), bool)
    done[3, 0] = True
    features, _ = encoder(images, encoder.initial_state(2), tf.constant(done), unroll=True)

    # The plain form: stack pixels, scale to [0, 1], convolve with the kernel in its usual layout.
    blocked = encoder.torso._layers[0]
    assert blocked.kernel.shape[:2] == (2, 2), "blocks are in use"
    channels = frame[2]
    kernel = tf.reshape(blocked.kernel, [2, 2, stack_size, 4, 4, channels, 32])
    kernel = tf.reshape(tf.transpose(kernel, [0, 3, 1, 4, 2, 5, 6]), [8, 8, -1, 32])
    plain = encoders.NatureTorso(Conv2D, tf.float32)
    plain(tf.zeros([1, *frame[:2], channels * stack_size]))
    for ours, theirs in zip(plain.variables, encoder.torso.variables, strict=True):
        ours.assign(kernel if theirs is blocked.kernel else theirs)
    state = encoders.frame_stacking.initial_frame_stacking_state(stack_size, 2, frame)
    stacked, _ = encoders.frame_stacking.stack_frames(
        tf.reshape(images, [6, 2, *frame]), state, tf.constant(done), stack_size
    )
    flat = tf.cast(tf.reshape(stacked, [12, *frame[:2], -1]), tf.float32) / 255.0
    np.testing.assert_allclose(features, tf.reshape(plain(flat), [6, 2, -1]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "shape, dtype, torso, stack_size",
    [
        ((84, 84, 3), tf.uint8, "nature", 4),  # Rows of 12 bytes: no blocks.
        ((80, 82, 1), tf.uint8, "nature", 4),  # Not a multiple of 4: no blocks.
        ((84, 84, 1), tf.float32, "nature", 2),
        ((72, 96, 3), tf.uint8, "impala_deep", 1),
        ((40, 40, 1), tf.uint8, "impala_shallow", 2),
    ],
)
@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_an_unroll_equals_its_steps(shape, dtype, torso, stack_size, compute_dtype):
    encoder = encoders.ImageEncoder(shape, torso, stack_size, dtype, compute_dtype)
    images = tf.cast(random_images(2, 5, 2, *shape), dtype)
    done = np.zeros((5, 2), bool)
    done[2, 1] = True
    state = encoder.initial_state(2)
    features, final = encoder(images, state, tf.constant(done), unroll=True)
    assert features.dtype == compute_dtype
    features = tf.cast(features, tf.float32).numpy()
    assert np.abs(features).max() > 0
    # bfloat16 sums in different orders for different batch sizes.
    tolerance = 1e-4 if compute_dtype == "float32" else 0.05
    for t in range(5):
        step, state = encoder(images[t], state, tf.constant(done[t]))
        np.testing.assert_allclose(
            tf.cast(step, tf.float32),
            features[t],
            rtol=tolerance,
            atol=tolerance * np.abs(features).max(),
        )
    tf.nest.map_structure(np.testing.assert_array_equal, state, final)


def test_float_images_are_not_scaled():
    bytes_, floats = (
        encoders.ImageEncoder((84, 84, 1), "nature", 1, dtype) for dtype in (tf.uint8, tf.float32)
    )
    images = random_images(3, 2, 84, 84, 1)
    done = tf.constant([True, True])
    floats(images.astype(np.float32), (), done)
    bytes_(images, (), done)
    for ours, theirs in zip(floats.variables, bytes_.variables, strict=True):
        ours.assign(theirs)
    np.testing.assert_allclose(
        floats(images.astype(np.float32) / 255, (), done)[0],
        bytes_(images, (), done)[0],
        rtol=1e-3,
        atol=1e-4,
    )


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_layer_norm_equals_numpy(compute_dtype):
    """Each row, or pixel, by itself; before the activation, after scale and offset."""
    rng = np.random.default_rng(4)
    images = rng.normal(1.0, 3.0, (2, 5, 5, 3)).astype(np.float32)
    options = dict(activation=tf.nn.relu, compute_dtype=compute_dtype)
    for plain, normed in (
        [Dense(6, **options | {"activation": None}), Dense(6, **options, layer_norm=True)],
        [Conv2D(6, 3, **options | {"activation": None}), Conv2D(6, 3, **options, layer_norm=True)],
    ):
        inputs = images if isinstance(plain, Conv2D) else images[:, 0, 0]
        plain(inputs), normed(inputs)
        normed.kernel.assign(plain.kernel)
        scale, offset = rng.normal(size=(2, 6))
        normed._norm.scale.assign(scale)
        normed._norm.offset.assign(offset)
        x = tf.cast(plain(inputs), tf.float32).numpy()
        x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        outputs = normed(inputs)
        assert outputs.dtype == compute_dtype
        tolerance = 1e-4 if compute_dtype == "float32" else 0.05
        expected = np.maximum(scale * x + offset, 0)
        np.testing.assert_allclose(tf.cast(outputs, tf.float32), expected, atol=tolerance)


@pytest.mark.parametrize(
    "torso, layers", [("nature", 4), ("impala_shallow", 3), ("impala_deep", 16)]
)
def test_layer_norm_is_in_each_layer(torso, layers):
    plain, normed = (
        encoders.ImageEncoder((84, 84, 1), torso, layer_norm=norm) for norm in (False, True)
    )
    for encoder in (plain, normed):
        encoder(random_images(5, 2, 84, 84, 1), (), tf.constant([True, True]))
    assert len(normed.trainable_variables) == len(plain.trainable_variables) + 2 * layers


def test_an_unknown_torso_is_refused():
    with pytest.raises(UserError, match="impala_deep"):
        encoders.ImageEncoder((84, 84, 1), "resnet")


@pytest.mark.parametrize("leading", [(1, 1), (1,)])
def test_nests_become_one_vector(leading):
    """Bytes become fractions; the leading dimensions stay, or become one."""
    observation = {
        "b": np.array([[1, 2]], np.int64),
        "a": (np.array([[[1.5], [2.5]]]), np.array([True]), np.array([[51]], np.uint8)),
    }
    observation = tf.nest.map_structure(lambda part: part.reshape(*leading, -1), observation)
    row = np.float32([1.5, 2.5, 1.0, 0.2, 1.0, 2.0])
    vector = encoders.flatten_observation(observation, len(leading), tf.constant(leading))
    np.testing.assert_allclose(vector, row.reshape(*leading, -1))
    rows = encoders.flatten_observation(observation, len(leading))
    np.testing.assert_allclose(rows, row[None])
    assert vector.dtype == rows.dtype == tf.float32


# ---- Layers --------------------------------------------------------------------------------------


def test_dense_is_an_affine_map():
    layer = Dense(3, activation=tf.nn.relu)
    inputs = np.random.default_rng(0).normal(size=(2, 4, 5)).astype(np.float32)
    layer(inputs)
    layer.bias.assign([0.5, -0.5, 0.0])
    expected = np.maximum(inputs @ layer.kernel.numpy() + [0.5, -0.5, 0.0], 0)
    np.testing.assert_allclose(layer(inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(64, 16), (16, 64), (3, 3, 4, 8)])
def test_orthogonal_initializer(shape):
    matrix = orthogonal(shape).numpy().reshape(-1, shape[-1])
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-5)


def test_glorot_counts_inputs_and_outputs():
    tf.random.set_seed(0)
    for shape, fans in (((400, 500), 900), ((3, 3, 64, 128), 9 * 192)):
        assert glorot(shape).numpy().var() == pytest.approx(2.0 / fans, rel=0.03)


def test_variance_scaling_keeps_the_size_of_signals():
    tf.random.set_seed(0)
    kernel = variance_scaling(2.0)([400, 500]).numpy()
    assert kernel.var() == pytest.approx(2.0 / 400, rel=0.02)
    assert kernel.mean() == pytest.approx(0.0, abs=0.001)
