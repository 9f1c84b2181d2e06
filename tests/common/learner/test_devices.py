"""The split of devices, training on several of them, and the TPU's encoding."""

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner import devices
from seed_rl.common.learner.tpu_encoding import PackedIntegers, pack, unpack
from seed_rl.common.networks.recurrent import StackedLSTM
from seed_rl.common.types import EnvOutput
from tests.helpers import PROGRAMS, stand_in

CPU = "/device:CPU:0"
GPUS = [f"/device:GPU:{number}" for number in range(8)]


def test_on_logical_devices(forks):
    forks.run(
        PROGRAMS / "devices_program.py",
        "devices_that_train",
        "one_device_shares_its_agent",
        "inference_gets_the_newest_weights",
        "inference_devices_draw_differently",
        code=0,
    )


def test_only_trainable_variables_move_by_a_fraction():
    """Guards target networks from statistics of observations that lag behind the network's."""

    def module(weight, mean):
        created = tf.Module()
        created.weight = tf.Variable(weight)
        created.mean = tf.Variable(mean, trainable=False)
        return created

    source, target = module(8.0, 5.0), module(0.0, 0.0)
    devices.copy_variables(source, [target], 0.25)
    assert (float(target.weight), float(target.mean)) == (2.0, 5.0)
    devices.copy_variables(source, [target])
    assert (float(target.weight), float(target.mean)) == (8.0, 5.0)


def test_training_threads(forks):
    """They can be set once, before TensorFlow starts; afterwards there is a warning."""
    result = forks.run(PROGRAMS / "devices_program.py", "training_threads", code=0)
    assert "training_threads=5 has no effect" in result.stderr


@pytest.mark.parametrize(
    ("inference", "training", "gpus", "expected"),
    [
        ("auto", "auto", 3, (GPUS[:1], GPUS[1:2])),
        ("auto", "auto", 0, ([CPU], [CPU])),
        ("auto", "auto", 1, (GPUS[:1], GPUS[:1])),
        ("gpu:1", "auto", 4, (GPUS[1:2], GPUS[:1])),
        ("gpu:0,gpu:1", "auto", 4, (GPUS[:2], GPUS[2:3])),
        ("gpu:0,gpu:1", "auto", 2, (GPUS[:2], GPUS[:1])),
        ("auto", "gpu:1,/GPU:2", 4, ([GPUS[0], GPUS[3]], GPUS[1:3])),
        ("auto", "gpu:0,gpu:1", 2, (GPUS[:1], GPUS[:2])),
        ("cpu:0", "auto", 2, ([CPU], GPUS[:1])),
        ("/device:gpu:0", " GPU:0 ", 2, (GPUS[:1], GPUS[:1])),
    ],
)
def test_the_split_of_gpus(inference, training, gpus, expected):
    """Guards the default: one GPU trains, whose steps are compiled."""
    config = DeviceConfig(inference_devices=inference, training_devices=training)
    available = ["/device:CPU:0", *GPUS[:gpus]]
    assert devices.choose(config, available) == expected


@pytest.mark.parametrize(
    ("inference", "training", "message"),
    [
        ("gpu:7", "auto", r"--inference_devices=gpu:7: .*has cpu:0, gpu:0, gpu:1"),
        ("auto", "gpu:0,gpu:0", "--training_devices=gpu:0,gpu:0 must name devices, each once"),
        ("", "auto", "--inference_devices= must name devices"),
        ("auto", "cpu:0,gpu:0", "mixes kinds"),
        ("one", "auto", "no such device"),
    ],
)
def test_impossible_splits_name_the_option(inference, training, message):
    config = DeviceConfig(inference_devices=inference, training_devices=training)
    with pytest.raises(UserError, match=message):
        devices.choose(config, [CPU, *GPUS[:2]])


@pytest.mark.parametrize(
    ("script", "hidden", "warns"),
    [
        ("echo 'GPU 0: NVIDIA H100 (UUID: GPU-1-a)'", None, True),
        ("echo 'GPU 0: NVIDIA H100 (UUID: GPU-1-a)'", "-1", False),
        ("exit 9", None, False),
    ],
)
def test_a_gpu_that_tensorflow_cannot_use_is_reported(tmp_path, monkeypatch, script, hidden, warns):
    stand_in(tmp_path / "nvidia-smi", script)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    if hidden is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    chosen = devices.make_devices(DeviceConfig("cpu:0", "cpu:0"))
    where = "inference on cpu:0, training on cpu:0"
    assert chosen.describe(StackedLSTM((4,))) == where
    assert chosen.describe(StackedLSTM((4,), "bfloat16")) == f"{where}, in bfloat16"
    assert ("scripts/setup.sh gpu" in (chosen.unused_gpus() or "")) == warns


@pytest.mark.parametrize(
    ("inference", "training", "hidden"),
    [("cpu:0", "CPU:0", True), ("auto", "cpu:0", False), ("cpu:0", "auto", False)],
)
def test_gpus_are_hidden_from_a_learner_that_uses_none(monkeypatch, inference, training, hidden):
    """Guards the arithmetic of a CPU's learner: a visible GPU would decide its type."""
    calls = []
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *call: calls.append(call))
    devices.make_devices(DeviceConfig(inference_devices=inference, training_devices=training))
    assert calls == [([], "GPU")] * hidden


def test_lists_survive_tf_data():
    """Guards recurrent states that are lists: tf.data alone would stack them to one tensor."""
    encode, decode = devices.through_tf_data(
        lambda n: tf.nest.map_structure(lambda t: t + 1, n),
        lambda n: tf.nest.map_structure(lambda t: t - 1, n),
    )
    batch = {"state": [tf.constant([1, 2]), tf.constant([3, 4])], "rest": (tf.constant(5.0),)}
    (element,) = tf.data.Dataset.from_tensors(0).map(lambda _: encode(batch))
    decoded = decode(element)
    tf.nest.assert_same_structure(batch, decoded)
    assert isinstance(decoded["state"], list)
    np.testing.assert_array_equal(decoded["state"], [[1, 2], [3, 4]])


def topology(hosts):
    """Of `hosts` hosts with two chips of two cores each."""
    coordinates = [
        [[chip, host, 0, core] for chip in range(2) for core in range(2)] for host in range(hosts)
    ]
    return tf.tpu.experimental.Topology(
        mesh_shape=[2, hosts, 1, 2], device_coordinates=np.array(coordinates, np.int32)
    )


@pytest.mark.parametrize(
    ("hosts", "training", "inference"),
    [
        (1, [(0, 0), (0, 1), (0, 2)], [(0, 3)]),
        # Every core infers, too, if none is left.
        (1, [(0, core) for core in range(4)], [(0, core) for core in range(4)]),
        (2, [(0, 0), (1, 0)], [(task, core) for task in range(2) for core in (1, 2, 3)]),
    ],
)
def test_the_cores_of_a_tpu_are_split(hosts, training, inference):
    """Given by (host, core); several hosts alike."""
    shape, job = topology(hosts), "localhost" if hosts == 1 else "worker"
    cores, inferring = devices.split_tpu(shape, len(training), job)
    assignment = tf.tpu.experimental.DeviceAssignment(shape, cores)
    trained = [assignment.tpu_device(n, 0, job=job) for n in range(len(training))]
    name = (f"/job:{job}" + "/task:{}/device:TPU:{}").format
    assert trained == [name(*core) for core in training]
    assert inferring == [name(*core) for core in inference]


@pytest.mark.parametrize(
    ("hosts", "num_training", "message"),
    [(1, 5, "the TPU has 4 cores"), (2, 3, "multiple of the 2 hosts")],
)
def test_impossible_tpu_splits(hosts, num_training, message):
    with pytest.raises(UserError, match=message):
        devices.split_tpu(topology(hosts), num_training, "worker")


def test_a_tpu_that_is_not_there_is_told():
    with pytest.raises(UserError, match="TPU cannot be used"):
        devices.make_devices(DeviceConfig(tpu="local"))
    with pytest.raises(UserError, match="--num_training_tpus"):
        devices.make_devices(DeviceConfig(tpu="local", training_devices="cpu:0"))


@settings(max_examples=60, deadline=None)
@given(
    dtype=st.sampled_from(["uint8", "int8", "uint16", "int16"]),
    shape=st.lists(st.integers(0, 5), max_size=5),
    seed=st.integers(0, 1000),
)
def test_the_encoding_is_exact_for_any_shape(dtype, shape, seed):
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(seed)
    array = generator.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    encoded = pack(tf.constant(array))
    assert encoded.words.dtype == tf.uint32
    decoded = unpack(encoded)
    assert decoded.dtype == dtype
    np.testing.assert_array_equal(decoded, array)


def test_frames_are_encoded_without_waste():
    frames = tf.zeros([21, 32, 84, 84, 1], tf.uint8)
    assert pack(frames).words.shape == [21, 32, 84 * 84 // 4]


def test_a_nest_is_encoded_in_a_dataset_and_decoded_on_the_replicas():
    generator = np.random.default_rng(0)
    frames = generator.integers(0, 256, [3, 2, 5, 7], np.uint8)
    env_outputs = EnvOutput(
        reward=tf.ones([3, 2]),
        done=tf.constant([[True, False]] * 3),
        observation={"frame": tf.constant(frames), "speed": tf.range(6)},
        abandoned=tf.zeros([3, 2], tf.bool),
        episode_step=tf.zeros([3, 2], tf.int32),
    )
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    dataset = tf.data.Dataset.from_tensors(0).map(lambda _: pack(env_outputs))
    batches = iter(strategy.distribute_datasets_from_function(lambda _: dataset))

    @tf.function
    def decode(batch):
        assert isinstance(batch.observation["frame"], PackedIntegers)
        return strategy.run(unpack, args=(batch,))

    decoded = decode(next(batches))
    assert isinstance(decoded, EnvOutput)
    tf.nest.map_structure(np.testing.assert_array_equal, decoded, env_outputs)


def test_unknown_leading_dimensions_may_stay_unknown():
    @tf.function(input_signature=[tf.TensorSpec([None, None, 3, 3], tf.uint8)])
    def roundtrip(frames):
        decoded = unpack(pack(frames))
        assert decoded.shape.as_list() == [None, None, 3, 3]
        return decoded

    frames = np.arange(2 * 3 * 9, dtype=np.uint8).reshape(2, 3, 3, 3)
    np.testing.assert_array_equal(roundtrip(frames), frames)
    with pytest.raises(ValueError, match="only the first two"):
        tf.function(pack).get_concrete_function(tf.TensorSpec([1, 1, None], tf.uint8))


def test_destroying_an_iterator_of_batches_waits_for_nobody():
    """The thread that tunes a dataset sometimes ends only after up to 60 s, which delayed the save
    at the end of a run. So there must be none.
    """

    def make_dataset():
        return tf.data.Dataset.range(10).repeat().prefetch(1)

    def num_threads():
        return len(list(Path("/proc/self/task").iterdir()))

    strategy = devices.make_devices(DeviceConfig()).training_strategy
    kept, added = [], []
    for _ in range(6):  # What TensorFlow starts at the first use is not counted.
        for make in (lambda: devices.batches(strategy, make_dataset), lambda: iter(make_dataset())):
            before = num_threads()
            kept.append(make())
            assert [int(next(kept[-1])) for _ in range(3)] == [0, 1, 2]
            added.append(num_threads() - before)
    # The median, as threads of other tests in this process may begin or end meanwhile.
    assert np.median(np.subtract(added[3::2], added[2::2])) == 1
