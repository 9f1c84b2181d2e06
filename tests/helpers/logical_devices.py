"""Logical CPU devices in place of several accelerators, in a process of their own.

The number of devices can be set only once, before TensorFlow uses any.
"""

from __future__ import annotations

import tensorflow as tf

from seed_rl.common.config.device_config import DeviceConfig


def make_cpus(number: int) -> None:
    """Makes the CPU so many devices, from cpu:0 on."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * number
    )


def make_replicas(number: int) -> DeviceConfig:
    """Makes cpu:0, which infers, and a device for each replica that trains."""
    make_cpus(number + 1)
    training = ",".join(f"cpu:{i + 1}" for i in range(number))
    return DeviceConfig(inference_devices="cpu:0", training_devices=training)
