"""Updates statistics on REPLICAS logical devices (a program of test_statistics_on_replicas.py).

    normalization_program.py REPLICAS

Prints as JSON what each replica then has, and a copy of the variables on another device. A separate
process, because the number of devices can be set only once.
"""

import json
import sys

import numpy as np
import tensorflow as tf

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.learner.devices import copy_variables, make_devices
from seed_rl.common.normalization.input_normalization import InputNormalization
from seed_rl.common.normalization.normalizer import Normalizer
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.normalization.running_statistics import (
    AverageMeanStd,
    EMAMeanStd,
    TwoLevelAverageMeanStd,
)

STEPS, BATCH, SIZE = 5, 8, 4
BETA = 0.3


def make_batches():
    """<float32>[STEPS, BATCH, SIZE]: an offset of 1e4, a constant, a drift, gaps in one half."""
    rng = np.random.default_rng(0)
    data = rng.normal(size=(STEPS, BATCH, SIZE))
    data[..., 0] += 1e4
    data[..., 1] = 1234.567
    data[..., 2] += np.arange(STEPS)[:, None]
    data[:, : BATCH // 2, 3] = [np.nan, np.inf, -np.inf, np.nan]
    data[0, :, 3] = np.nan
    return data.astype(np.float32)


class Statistics(tf.Module):
    def __init__(self):
        super().__init__()
        self.trackers = {
            "average": AverageMeanStd(),
            "ema": EMAMeanStd(BETA),
            "two_level": TwoLevelAverageMeanStd(buffer_size=2),
        }
        for tracker in self.trackers.values():
            tracker.init(SIZE)
        self.popart = PopArt(EMAMeanStd(BETA))
        self.popart.init()
        self.inputs = InputNormalization(EMAMeanStd(BETA))
        self.inputs.init_normalization_stats(SIZE)
        self.normalizer = Normalizer()
        self.normalizer.build([None, SIZE])

    def update(self, part):
        for tracker in self.trackers.values():
            tracker.update(part)
        self.popart.update_normalization_statistics(part[:, 2])
        self.inputs.update_normalization_statistics(part)
        self.normalizer.update(part, only_accumulate=True)
        return self.values()

    def values(self):
        values = {name: tf.stack(t.get_mean_std()) for name, t in self.trackers.items()}
        return {
            **values,
            "popart": self.popart.unnormalize_prediction(self.popart.correct_prediction([1.5])),
            "inputs": self.inputs.correct(self.inputs.normalize(tf.fill([SIZE], 1.5))),
            "count": self.trackers["average"].observation_count + 0,
            "normalizer": tf.stack([self.normalizer.mean, self.normalizer.std]),
        }


def main(replicas):
    (cpu,) = tf.config.list_physical_devices("CPU")
    logical = [tf.config.LogicalDeviceConfiguration()] * (replicas + 1)
    tf.config.set_logical_device_configuration(cpu, logical)
    training = ",".join(f"cpu:{i + 1}" for i in range(replicas))
    config = DeviceConfig(inference_devices="cpu:0", training_devices=training)
    strategy = make_devices(config).training_strategy
    with strategy.scope():
        statistics = Statistics()
    with tf.device("cpu:0"):
        copy = Statistics()

    @tf.function
    def step(parts):
        return strategy.run(statistics.update, args=(parts,))

    for batch in make_batches():
        parts = np.split(batch, replicas)

        def part_of(context, parts=parts):
            return tf.constant(parts[context.replica_id_in_sync_group])

        step(strategy.experimental_distribute_values_from_function(part_of))
        statistics.normalizer.finish_update()
    tf.function(copy_variables)(statistics, [copy])
    values = tf.function(lambda: strategy.run(statistics.values))()
    result = {
        name: [local.numpy().tolist() for local in strategy.experimental_local_results(value)]
        for name, value in values.items()
    }
    result["copy"] = {name: value.numpy().tolist() for name, value in copy.values().items()}
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]))
