"""Fits a regression with `TrainingStep` on one or several logical devices; prints the weights.

regression_program.py REPLICAS [unused | loop] [ADDRESSES INDEX]

`unused` adds a variable that the loss does not depend on; `loop` makes three gradient steps on each
batch, in a loop of the graph; with ADDRESSES, each replica is a learner of its own, and this is the
one of INDEX. The last line has the mean error of the last step and its feedback, with learners that
of this one; `loop` has no feedback.
"""

import sys

import numpy as np
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules.minibatches import mean_of_steps
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.learner.devices import make_devices
from seed_rl.common.learner.fused_adam import FusedAdam
from seed_rl.common.learner.training import TrainingStep, mean_result
from tests.helpers.logical_devices import make_replicas


class Regression(Algorithm):
    def __init__(self):
        self.network = self.make_network()

    def make_network(self):
        network = tf.Module()
        network.weights = tf.Variable([[1.0], [2.0], [3.0]])
        if "unused" in sys.argv:
            network.head = tf.Variable([7.0])
        return network

    def act(self, *args):
        raise AssertionError

    evaluate = act

    def loss(self, batch):
        inputs, targets = batch
        errors = tf.squeeze(inputs @ self.network.weights, 1) - targets
        return StepResult(
            tf.reduce_mean(errors**2), {"mean": tf.reduce_mean(errors)}, tf.abs(errors)
        )

    def update(self, batch, minimize):
        def step(_=None):
            return minimize(lambda: self.loss(batch))

        if "loop" in sys.argv:
            return mean_of_steps(step, 3)
        return mean_result([step()])


def main():
    replicas = int(sys.argv[1])
    parts = slice(None)
    if learners := len(sys.argv) > 3 and ":" in sys.argv[-2]:
        index = int(sys.argv[-1])
        parts = slice(index, None, replicas)
        config = DeviceConfig(learner_addresses=sys.argv[-2], learner_index=index)
    else:
        config = make_replicas(replicas)
    strategy = make_devices(config).training_strategy
    with strategy.scope():
        algorithm = Regression()
        # Its steps show the size of gradients; Adam's hardly do.
        optimizer = tf.keras.optimizers.SGD(0.1) if "unused" in sys.argv else FusedAdam(0.1)
    step = TrainingStep(algorithm, optimizer, strategy, clip_norm=5.0)
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=[5, 4, 3]).astype(np.float32)
    targets = generator.normal(size=[5, 4]).astype(np.float32)

    def dataset(_):
        per_replica = 4 // replicas
        return tf.data.Dataset.from_tensor_slices(
            (inputs.reshape(-1, per_replica, 3)[parts], targets.reshape(-1, per_replica)[parts])
        )

    batches = iter(
        dataset(None) if learners else strategy.distribute_datasets_from_function(dataset)
    )
    for _ in range(5):
        metrics, feedback = step.run(next(batches) if learners else batches)
    for variable in algorithm.trainable_variables():
        print(*variable.numpy().ravel())
    print(float(metrics["mean"]), *(feedback.numpy() if "loop" not in sys.argv else ()))


if __name__ == "__main__":
    main()
