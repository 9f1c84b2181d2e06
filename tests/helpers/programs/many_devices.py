"""A main program on a machine with several devices: here, logical CPUs.

many_devices.py MODULE [flags of the module]
"""

import runpy
import sys

import tensorflow as tf


def main() -> None:
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 4)
    module = sys.argv.pop(1)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
