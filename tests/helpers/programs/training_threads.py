"""Sets the number of training threads twice (a program of test_devices.py)."""

import tensorflow as tf

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.learner import devices

for threads in (3, 5):
    devices.make_devices(DeviceConfig(training_threads=threads))
    print(tf.config.threading.get_inter_op_parallelism_threads())
    print(tf.config.threading.get_intra_op_parallelism_threads())
