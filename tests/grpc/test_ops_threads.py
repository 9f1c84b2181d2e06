"""Functions whose ops have CPU threads of their own."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.grpc import ops
from tests.helpers.op_helpers import serving


@pytest.mark.parametrize("op_threads", [0, 1, 2])
def test_results_do_not_depend_on_threads(op_threads, socket_address):
    """Guards convolutions, which split their work among threads; of random choices, which do so
    too, only that they are possible ones.
    """
    kernel = tf.Variable(tf.random.stateless_normal([5, 5, 3, 8], [1, 2]))

    @tf.function(input_signature=[tf.TensorSpec([None, 40, 40, 3], tf.float32)])
    def convolve(images):
        features = tf.nn.relu(tf.nn.conv2d(images, kernel, 2, "SAME"))
        choices = tf.random.categorical(tf.reshape(features, [-1, 8]), 1)
        return tf.reduce_sum(features, [1, 2]), tf.reduce_max(
            tf.reshape(choices, [tf.shape(images)[0], -1]), 1
        )

    with serving(socket_address, convolve, op_threads=op_threads):
        client = ops.Client(socket_address)
        images = tf.random.stateless_normal([16, 40, 40, 3], [3, 4])
        for _ in range(20):
            sums, choices = client.convolve(images)
            np.testing.assert_allclose(sums, convolve(images)[0], rtol=1e-4)
            assert choices.shape == [16] and np.all(choices.numpy() < 8)
