"""The names of existing code, and the small tensor helpers behind them."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common import parametric_distribution, profiling, utils
from seed_rl.common.types import EnvOutput


def test_every_name_of_the_facade_exists():
    for name in dir(utils):
        assert getattr(utils, name) is not None
    assert utils.EnvOutput is EnvOutput
    assert utils.Settings._fields == (
        "strategy",
        "inference_devices",
        "training_strategy",
        "encode",
        "decode",
    )
    assert utils.MultiHostSettings._fields[1] == "hosts"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = utils.nonsense


def test_spaces_of_old_gym():
    """Recognized by name: the old package need not be installed."""
    box = type("Box", (), dict(low=-np.ones(2), high=np.ones(2), dtype=np.float32))()
    space = type(
        "Dict", (), dict(spaces={"steer": box, "gear": type("Discrete", (), {"n": 3})()})
    )()
    specs = utils.tensor_spec_from_gym_space(space, "action")
    distribution = parametric_distribution.get_parametric_distribution_for_action_space(space)
    sample = distribution.sample(tf.zeros([distribution.param_size]))
    for key, spec in specs.items():
        assert (sample[key].dtype, sample[key].shape) == (spec.dtype, spec.shape)


def test_init_learner_gives_settings():
    settings = utils.init_learner(num_training_tpus=1)
    assert settings.strategy is settings.training_strategy
    assert len(settings.inference_devices) == 1
    strategy, hosts, training_strategy, encode, decode = utils.init_learner_multi_host(1)
    assert strategy is training_strategy
    assert hosts == [("/device:CPU:0", settings.inference_devices)]
    assert decode(encode(1)) == 1
    # As learners do that take a flattened batch out of a dataset.
    batch = tuple(tf.nest.flatten(encode({"a": tf.constant(1), "b": [tf.constant(2)]})))
    assert settings.decode(batch, [0, 0]) == decode(batch, [0, 0]) == [1, 2]


def test_batch_apply_folds_time_into_the_batch():
    seen = []

    def fn(frames, extra):
        seen.append(frames.shape.as_list())
        return {"sum": tf.reduce_sum(frames, [1, 2]) + extra["x"], "frames": frames}

    frames = tf.reshape(tf.range(2 * 3 * 4 * 5), [2, 3, 4, 5])
    extra = {"x": tf.reshape(tf.range(6), [2, 3])}
    result = utils.batch_apply(fn, (frames, extra))
    assert seen == [[6, 4, 5]]
    np.testing.assert_array_equal(result["sum"], frames.numpy().sum((2, 3)) + extra["x"])
    np.testing.assert_array_equal(result["frames"], frames)


def test_batch_apply_keeps_what_is_known_of_shapes():
    @tf.function(input_signature=[tf.TensorSpec([21, None, 7])])
    def run(inputs):
        outputs = utils.batch_apply(lambda x: x[:, :3], (inputs,))
        assert outputs.shape.as_list() == [21, None, 3]
        return outputs

    assert run(tf.zeros([21, 2, 7])).shape == [21, 2, 3]


def test_make_time_major_swaps_batch_and_time():
    x = {"a": tf.reshape(tf.range(24), [2, 3, 4]), "b": tf.zeros([2, 3])}
    swapped = utils.make_time_major(x)
    np.testing.assert_array_equal(swapped["a"], np.swapaxes(x["a"].numpy(), 0, 1))
    assert swapped["b"].shape == [3, 2]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("prefix", [0, 1, 3])
def test_split_structure_cuts_in_two(axis, prefix):
    x = (tf.reshape(tf.range(36), [4, 3, 3]), tf.reshape(tf.range(12), [4, 3]))
    first, rest = utils.split_structure(x, prefix, axis)
    for whole, left, right in zip(x, first, rest, strict=True):
        assert left.shape[axis] == prefix
        np.testing.assert_array_equal(tf.concat([left, right], axis), whole)


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


def test_profiling_aggregator():
    aggregator = profiling.Aggregator()
    assert aggregator.average() == 0
    aggregator.add(1)
    aggregator.add(4)
    assert aggregator.average() == 2.5
    aggregator.reset()
    assert aggregator.average() == 0


def test_exporting_timer_writes_a_mean_per_window(tmp_path):
    timer = profiling.ExportingTimer("step_ms", 2)
    with tf.summary.create_file_writer(str(tmp_path)).as_default():
        for _ in range(5):
            with timer:
                pass
    (path,) = tmp_path.iterdir()
    events = [
        (event.step, value.tag, tf.make_ndarray(value.tensor).item())
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert [event[:2] for event in events] == [(2, "step_ms"), (4, "step_ms")]
    assert all(event[2] > 0 for event in events)
