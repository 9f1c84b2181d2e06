"""Trains R2D2 on two logical devices while a third one acts."""

import numpy as np
import tensorflow as tf

from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.learner import variables
from seed_rl.common.learner.devices import make_devices
from seed_rl.testing.envs import LifeStepEnv
from tests.helpers.in_process import Run


def main():
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 3)
    devices = make_devices(DeviceConfig(inference_devices="cpu:0", training_devices="cpu:1,cpu:2"))
    config = R2D2Config(burn_in=2, n_steps=2, update_target_every_n_step=2)
    with Run(lambda: LifeStepEnv(5), config, placement=devices) as run:
        run.start()
        run.act()
        for step in range(1, 5):
            _, (indices, priorities) = run.train()
            assert indices.shape == [8] and priorities.shape == [8]
            agent, target = (
                [v.numpy() for v in variables.variables(a)]
                for a in (run.algorithm.network, run.algorithm.target_network)
            )
            same = all(np.array_equal(a, t) for a, t in zip(agent, target, strict=True))
            assert same == (step % 2 == 0), step
    assert run.actor_error is None
    print("fine")


if __name__ == "__main__":
    main()
