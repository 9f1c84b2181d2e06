"""A training step gives the same weights on one device and on several."""

import contextlib
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.learner import compiling
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.learner.training import TrainingStep
from seed_rl.launch.ports import free_port
from tests.helpers import PROGRAMS


@pytest.fixture
def train(forks):
    """`train(replicas)` returns (numbers that the program prints, its warnings)."""

    def train(replicas, *more):
        program = PROGRAMS / "regression_program.py"
        result = forks.run(program, str(replicas), *more, code=0)
        return np.array(result.stdout.split(), np.float64), result.stderr

    return train


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], pytest.param(["loop"], marks=pytest.mark.nightly)])
def test_two_learners_equal_one(train, more):
    """Guards the update of several learners, processes that share each batch."""
    (single, _) = train(1, *more)
    addresses = f"localhost:{free_port()},localhost:{free_port()}"
    program = [sys.executable, str(PROGRAMS / "regression_program.py"), "2", *more]
    program.append(addresses)
    learners = [
        subprocess.Popen([*program, str(i)], stdout=subprocess.PIPE, text=True) for i in range(2)
    ]
    try:
        numbers = [np.array(p.communicate(timeout=300)[0].split(), np.float64) for p in learners]
    finally:
        for learner in learners:
            learner.kill()
    for part, own in zip(numbers, (single[4:6], single[6:]), strict=True):
        np.testing.assert_allclose(part, [*single[:4], *own], rtol=1e-5, atol=1e-6)


def test_a_variable_without_gradient(train):
    """Guards a head that the loss does not use: a warning, on one replica and on several."""
    (single, warned), (mirrored, warned_too) = (train(n, "unused") for n in (1, 2))
    np.testing.assert_allclose(mirrored, single, rtol=1e-5, atol=1e-6)
    assert single[0] == 7.0
    for text in (warned, warned_too):
        assert "Gradients do not exist for variables" in text


def make_step(algorithm, clip_norm=None, device="cpu:0", **options):
    """A training step with plain gradient descent."""
    strategy = tf.distribute.OneDeviceStrategy(device)
    optimizer = tf.keras.optimizers.SGD(0.1)
    return TrainingStep(algorithm, optimizer, strategy, clip_norm, **options)


class Line(Algorithm):
    """Fits one weight to the batch."""

    def __init__(self):
        self.network = self.make_network()

    def make_network(self):
        agent = tf.Module()
        agent.weight = tf.Variable(1.0)
        return agent

    def act(self, *args):
        raise AssertionError

    evaluate = act

    def loss(self, batch):
        return StepResult(tf.square(self.network.weight - batch), {})


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_batch_with_nan_does_not_spoil_the_weights(clip_norm):
    """Guards training against environments that give NaN or infinite rewards."""
    algorithm = Line()
    step = make_step(algorithm, clip_norm)
    batches = iter(tf.data.Dataset.from_tensor_slices([np.nan, 3.0, np.inf, 3.0]))
    weights, skipped = [], []
    for _ in range(4):
        metrics, _ = step.run(batches)
        weights.append(float(algorithm.network.weight))
        skipped.append(float(metrics["skipped_steps"]))
    assert skipped == [1.0, 0.0, 1.0, 0.0]
    assert weights[0] == 1.0 and weights[1] > 1.0
    assert weights[2] == weights[1] < weights[3]
    if clip_norm:
        np.testing.assert_allclose(np.diff([1.0, *weights])[[1, 3]], 0.05, rtol=1e-5)


class TwoGroups(Line):
    """The same with a multiplier, whose gradient is far larger than the network's."""

    def __init__(self):
        super().__init__()
        self.multiplier = tf.Variable(1.0)

    def loss(self, batch):
        loss = tf.square(self.network.weight - batch) + 1e4 * self.multiplier
        return StepResult(loss, {})

    def trainable_variables(self):
        return [self.multiplier, self.network.weight]

    def clipped_apart(self):
        return [self.multiplier]


def test_multipliers_do_not_clip_the_network():
    """Guards the network's step size against the gradient of an adjusted cost, which has bounds."""
    algorithm = TwoGroups()
    step = make_step(algorithm, clip_norm=5.0)
    batches = iter(tf.data.Dataset.from_tensor_slices([3.0, np.nan]))
    metrics, _ = step.run(batches)
    assert float(metrics["gradient_norm"]) == pytest.approx(4.0)
    assert float(algorithm.network.weight) == pytest.approx(1.0 + 0.1 * 4.0)
    assert float(algorithm.multiplier) == pytest.approx(1.0 - 0.1 * 5.0)
    # Nor is either trained on what made the other's gradient NaN.
    metrics, _ = step.run(batches)
    assert float(metrics["skipped_steps"]) == 1.0
    assert float(algorithm.multiplier) == pytest.approx(1.0 - 0.1 * 5.0)


class Embedding(Line):
    """Reads the first row of an embedding twice."""

    def make_network(self):
        agent = tf.Module()
        agent.table = tf.Variable([[1.0], [1.0]])
        return agent

    def loss(self, batch):
        return StepResult(batch * tf.reduce_sum(tf.gather(self.network.table, [0, 0])), {})


def test_rows_read_twice_are_clipped_by_their_whole_gradient():
    """Guards the norm of sparse gradients, which list such a row twice."""
    algorithm = Embedding()
    metrics, _ = make_step(algorithm, clip_norm=1.0).run(tf.constant(3.0))
    assert float(metrics["gradient_norm"]) == pytest.approx(6.0)
    np.testing.assert_allclose(algorithm.network.table, [[0.9], [1.0]], rtol=1e-6)


class Own(Line):
    """The same with a function of the user's on the batch."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def jit_pays(self, device_type):
        return device_type == "CPU"

    def loss(self, batch):
        return super().loss(self._function(batch))


def _in_python(batch):
    return tf.py_function(lambda value: value, [batch], tf.float32)


def _asserted(batch):
    tf.debugging.assert_less(batch, 4.0)
    return batch


def _last_of_some(batch):
    some = tf.stack([1.0, batch, -1.0])
    return tf.boolean_mask(some, some > 0.0)[-1]


def _train(jit, algorithm, batch):
    """The weight after two steps."""
    step = make_step(algorithm, jit=jit)
    for _ in range(2):
        step.run(tf.constant(batch))
    return float(algorithm.network.weight)


def _last_of_a_growing_array(batch):
    array = tf.TensorArray(tf.float32, 0, dynamic_size=True, element_shape=[])
    return array.write(0, 0.0 * batch).write(1, batch).stack()[-1]


def _with_noise(batch):
    return batch + 0.0 * tf.random.normal([])


_NO_TRITON = "--xla_gpu_enable_triton_gemm=false"
_CHANGED = [
    *((_in_python, "EagerPyFunc"), (_asserted, "Assert")),
    *((_last_of_some, "Where"), (_with_noise, "RandomStandardNormal")),
    (_last_of_a_growing_array, "TensorListSetItem"),
]


@pytest.mark.parametrize(("function", "op"), _CHANGED)
def test_only_what_xla_computes_alike_is_compiled(caplog, function, op):
    """Guards losses of one's own against a default that knows nothing of their ops.

    XLA compiles assertions to nothing, pads what `tf.boolean_mask` returns, and ignores seeds.
    """
    assert _train("auto", Own(function), 3.0) == pytest.approx(1.0 + 0.4 + 0.32)
    assert "not compiled (--jit)" in caplog.text and op in caplog.text
    with pytest.raises(UserError, match=f"{op}.*Leave --jit=true out"):
        _train("true", Own(function), 3.0)


def test_several_replicas_are_not_compiled():
    """Guards the message: gradients cannot be exchanged inside of a compiled step."""
    two = SimpleNamespace(scope=contextlib.nullcontext, num_replicas_in_sync=2)
    with pytest.raises(UserError, match="--jit=true needs one training device"):
        TrainingStep(Line(), tf.keras.optimizers.SGD(0.1), two, None, jit="true")


def test_compiled_steps_train():
    """Guards --jit=true, also of an algorithm that would not be compiled by default."""
    assert _train("true", Line(), 3.0) == pytest.approx(1.0 + 0.4 + 0.32)


_OF_A_GPU = """Graph execution error:

Detected at node StatefulPartitionedCall defined at (most recent call last):
  File "training.py", line 126, in _compiled_step

Failed to analyze the computation (Failed to compute symbolic tile)
HloModule gemm"""


@pytest.mark.parametrize("error", [tf.errors.InternalError, tf.errors.NotFoundError])
def test_what_xla_fails_to_compile_runs_as_it_is(monkeypatch, caplog, error):
    """Guards the default against errors of XLA on a GPU (no ptxas, bugs), and what they hide."""

    def fail(_):
        raise error(None, None, _OF_A_GPU)

    algorithm = Own(lambda batch: batch)
    failing = make_step(algorithm, jit="auto")
    monkeypatch.setattr(failing, "_run", fail)
    failing.run(tf.constant(3.0))
    assert float(algorithm.network.weight) == pytest.approx(1.0 + 0.4)
    assert "not compiled (--jit): Failed to analyze the computation" in caplog.text

    required, proven = (make_step(algorithm, jit=jit) for jit in ("true", "auto"))
    proven.run(tf.constant(3.0))
    for compiled in (required, proven):
        monkeypatch.setattr(compiled, "_run", fail)
        with pytest.raises(error, match="symbolic tile"):
            compiled.run(tf.constant(3.0))


def test_what_xla_refuses_is_made_up_for():
    """Guards inference that waits until training has used its batch, one of which is lost."""
    lost = []
    algorithm = Own(lambda batch: tf.strings.to_number(tf.strings.as_string(batch)))
    step = make_step(algorithm, jit="auto")
    batches = iter(tf.data.Dataset.from_tensors(3.0).repeat(3))
    for _ in range(2):
        step.run(batches, on_lost_batch=lambda: lost.append(float(algorithm.network.weight)))
    assert lost == [1.0]
    assert float(algorithm.network.weight) == pytest.approx(1.0 + 0.4 + 0.32)


def test_the_end_of_the_batches_is_no_error_of_xla(caplog):
    """Guards the message of a run that ends before its first step."""
    step = make_step(Own(lambda b: b), jit="auto")
    with pytest.raises(tf.errors.OutOfRangeError):
        step.run(iter(tf.data.Dataset.from_tensor_slices([3.0]).take(0)))
    assert not caplog.text


def test_xla_flags_that_name_a_file_stay(monkeypatch):
    """Guards a user's own flags, of which XLA takes the last, against the one that is added."""
    for flags, expected in (("/a/file", "/a/file"), ("--b=1", f"{_NO_TRITON} --b=1")):
        monkeypatch.setenv("XLA_FLAGS", flags)
        compiling.without_triton()
        assert os.environ["XLA_FLAGS"] == expected


@pytest.mark.parametrize(("device", "expected"), [("gpu:0", f"{_NO_TRITON} "), ("cpu:0", "")])
def test_triton_is_off_on_gpus(monkeypatch, device, expected):
    """Guards PPO on Atari, whose step TensorFlow 2.21 cannot compile with it."""
    monkeypatch.setenv("XLA_FLAGS", "")
    make_step(Line(), device=device, jit="true")
    assert os.environ["XLA_FLAGS"] == expected


def test_an_assertion_of_a_loss_still_fails():
    """Guards against training on what the user's own loss would have refused."""
    with pytest.raises(tf.errors.InvalidArgumentError, match="did not hold"):
        _train("auto", Own(_asserted), 5.0)
