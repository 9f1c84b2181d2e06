"""What every layer shares: functions without a time dimension, applied to unrolls."""

import numpy as np
import tensorflow as tf

from seed_rl.common.networks import layers


def test_batch_apply_folds_time_into_the_batch():
    seen = []

    def fn(frames, extra):
        seen.append(frames.shape.as_list())
        return {"sum": tf.reduce_sum(frames, [1, 2]) + extra["x"], "frames": frames}

    frames = tf.reshape(tf.range(2 * 3 * 4 * 5), [2, 3, 4, 5])
    extra = {"x": tf.reshape(tf.range(6), [2, 3])}
    result = layers.batch_apply(fn, (frames, extra))
    assert seen == [[6, 4, 5]]
    np.testing.assert_array_equal(result["sum"], frames.numpy().sum((2, 3)) + extra["x"])
    np.testing.assert_array_equal(result["frames"], frames)


def test_batch_apply_keeps_what_is_known_of_shapes():
    @tf.function(input_signature=[tf.TensorSpec([21, None, 7])])
    def run(inputs):
        outputs = layers.batch_apply(lambda x: x[:, :3], (inputs,))
        assert outputs.shape.as_list() == [21, None, 3]
        return outputs

    assert run(tf.zeros([21, 2, 7])).shape == [21, 2, 3]
