import numpy as np
import tensorflow as tf

from seed_rl.common.learner.batch_codec import BatchCodec


def test_lists_survive_tf_data():
    """Guards recurrent states that are lists: tf.data alone would stack them to one tensor."""
    form = BatchCodec(
        encode=lambda n: tf.nest.map_structure(lambda t: t + 1, n),
        decode=lambda n: tf.nest.map_structure(lambda t: t - 1, n),
    )
    batch = {"state": [tf.constant([1, 2]), tf.constant([3, 4])], "rest": (tf.constant(5.0),)}
    dataset = tf.data.Dataset.from_tensors(0).map(lambda _: form.encode(batch))
    (element,) = dataset
    decoded = form.decode(element)
    tf.nest.assert_same_structure(batch, decoded)
    assert isinstance(decoded["state"], list)
    np.testing.assert_array_equal(decoded["state"], [[1, 2], [3, 4]])
