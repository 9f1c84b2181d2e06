"""A training step gives the same weights on one device and on several."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.algorithm import Algorithm, StepResult
from seed_rl.common.training import TrainingStep

PROGRAM = textwrap.dedent(
    """
    import sys
    import numpy as np
    import tensorflow as tf

    replicas, optimizer_name = int(sys.argv[1]), sys.argv[2]
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * (replicas + 1),
    )
    from seed_rl.common.algorithm import Algorithm, StepResult
    from seed_rl.common.devices import make_devices
    from seed_rl.common.device_config import DeviceConfig
    from seed_rl.common.training import TrainingStep

    class Regression(Algorithm):
        def __init__(self):
            self.agent = self.make_agent()

        def make_agent(self):
            agent = tf.Module()
            agent.weights = tf.Variable([[1.0], [2.0], [3.0]])
            return agent

        def act(self, *args):
            raise AssertionError

        evaluate = act

        def loss(self, batch):
            inputs, targets = batch
            errors = tf.squeeze(inputs @ self.agent.weights, 1) - targets
            return StepResult(
                tf.reduce_mean(errors**2), {"mean": tf.reduce_mean(errors)}, tf.abs(errors)
            )

    training = ",".join(f"cpu:{i + 1}" for i in range(replicas))
    devices = make_devices(DeviceConfig(inference_devices="cpu:0", training_devices=training))
    strategy = devices.training_strategy
    with strategy.scope():
        algorithm = Regression()
        optimizer = getattr(tf.keras.optimizers, optimizer_name)(0.1)
    step = TrainingStep(algorithm, optimizer, strategy, clip_norm=5.0)
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=[5, 4, 3]).astype(np.float32)
    targets = generator.normal(size=[5, 4]).astype(np.float32)

    def dataset(context):
        per_replica = 4 // replicas
        return tf.data.Dataset.from_tensor_slices(
            (inputs.reshape(-1, per_replica, 3), targets.reshape(-1, per_replica))
        )

    batches = iter(strategy.distribute_datasets_from_function(dataset))
    for _ in range(5):
        metrics, feedback = step(batches)
    print(*algorithm.agent.weights.numpy().ravel(), float(metrics["mean"]), *feedback.numpy())
    """
)


def train(replicas, optimizer):
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(replicas), optimizer],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert output.returncode == 0, output.stderr
    return np.array(output.stdout.split(), np.float64)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_mirrored_training_equals_single_device(optimizer):
    """Guards averaging and clipping of gradients, and that Keras does not add them up again."""
    single, mirrored = train(1, optimizer), train(2, optimizer)
    assert single.shape == (3 + 1 + 4,)
    np.testing.assert_allclose(mirrored, single, rtol=1e-5, atol=1e-6)


class Line(Algorithm):
    """Fits one weight to the batch."""

    def __init__(self):
        self.agent = self.make_agent()

    def make_agent(self):
        agent = tf.Module()
        agent.weight = tf.Variable(1.0)
        return agent

    def act(self, *args):
        raise AssertionError

    evaluate = act

    def loss(self, batch):
        return StepResult(tf.square(self.agent.weight - batch), {})


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_a_batch_with_nan_does_not_spoil_the_weights(clip_norm):
    """Guards training against environments that give NaN or infinite rewards."""
    algorithm = Line()
    strategy = tf.distribute.get_strategy()
    step = TrainingStep(algorithm, tf.keras.optimizers.SGD(0.1), strategy, clip_norm)
    batches = iter(tf.data.Dataset.from_tensor_slices([np.nan, 3.0, np.inf, 3.0]))
    weights, skipped = [], []
    for _ in range(4):
        metrics, _ = step(batches)
        weights.append(float(algorithm.agent.weight))
        skipped.append(float(metrics["skipped_steps"]))
    assert skipped == [1.0, 0.0, 1.0, 0.0]
    assert weights[0] == 1.0 and weights[1] > 1.0
    assert weights[2] == weights[1] < weights[3]
    if clip_norm:
        np.testing.assert_allclose(np.diff([1.0, *weights])[[1, 3]], 0.05, rtol=1e-5)
