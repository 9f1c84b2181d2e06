"""Tables and queues of tensors that programs make themselves."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import utils
from seed_rl.common.types import EnvOutput


def test_aggregator_keeps_a_row_per_environment():
    specs = {"frames": tf.TensorSpec([], tf.int32), "state": tf.TensorSpec([2], tf.float32)}
    table = utils.Aggregator(4, specs)
    ids = tf.constant([1, 3])
    first = {"frames": tf.constant([5, 6]), "state": tf.ones([2, 2])}
    table.replace(ids, first)
    table.add(tf.constant([3, 3]), {"frames": tf.constant([1, 1]), "state": tf.ones([2, 2])})
    rows = table.read(tf.constant([0, 1, 3]))
    assert type(rows) is dict
    assert rows["frames"].numpy().tolist() == [0, 5, 8]
    assert rows["state"].numpy().tolist() == [[0, 0], [1, 1], [3, 3]]
    table.reset(tf.constant([3]))
    assert table.read(ids)["frames"].numpy().tolist() == [5, 0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Duplicate environment ids"):
        table.replace(tf.constant([2, 2]), first)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Duplicate environment ids"):
        tf.function(table.replace)(tf.constant([2, 2]), first)
    assert table.read(tf.constant([2]))["frames"].numpy().tolist() == [0]


def test_a_structured_queue_keeps_nests():
    specs = EnvOutput(
        *(tf.TensorSpec([], t) for t in (tf.float32, tf.bool)),
        {"frame": tf.TensorSpec([2], tf.uint8)},
        tf.TensorSpec([], tf.bool),
        tf.TensorSpec([], tf.int32),
    )
    queue = utils.StructuredFIFOQueue(8, specs)
    one = EnvOutput(1.0, False, {"frame": np.array([1, 2], np.uint8)}, True, 7)
    queue.enqueue(one)
    queue.enqueue_many(tf.nest.map_structure(lambda value: np.stack([value, value]), one))
    assert queue.dequeue().observation["frame"].numpy().tolist() == [1, 2]
    many = queue.dequeue_many(2)
    assert isinstance(many, EnvOutput)
    assert many.episode_step.numpy().tolist() == [7, 7]
    with pytest.raises((TypeError, ValueError)):
        queue.enqueue(one._replace(observation={"other": 1}))


def test_a_structured_queue_of_one_tensor():
    queue = utils.StructuredFIFOQueue(2, (tf.TensorSpec([], tf.int32),))

    @tf.function
    def there_and_back():
        queue.enqueue((3,))
        return queue.dequeue()

    (value,) = there_and_back()
    assert value.numpy() == 3


def test_get_non_dying_envs_returns_a_mask_and_ids(wrap):
    """Guards that of an environment twice in a batch only the row that asks for a reset stays."""
    keep = wrap(utils.get_non_dying_envs)
    mask, ids = keep(
        tf.constant([7, 2]), tf.constant([False, True, False, True]), tf.constant([7, 7, 1, 2])
    )
    assert mask.dtype == tf.bool
    assert mask.numpy().tolist() == [False, True, True, True]
    assert ids.numpy().tolist() == [7, 1, 2]
    mask, ids = keep(tf.zeros([0], tf.int32), tf.constant([False, False]), tf.constant([4, 3]))
    assert (mask.numpy().tolist(), ids.numpy().tolist()) == ([True, True], [4, 3])


@pytest.mark.parametrize(
    ("needing", "mask"), [([7], [True, True]), ([], [False, False])], ids=["reset", "no reset"]
)
def test_the_same_environment_twice_among_the_kept_is_an_error(wrap, needing, mask):
    with pytest.raises(tf.errors.InvalidArgumentError, match="Duplicate"):
        wrap(utils.get_non_dying_envs)(
            tf.constant(needing, tf.int32), tf.constant(mask), tf.constant([7, 7])
        )
