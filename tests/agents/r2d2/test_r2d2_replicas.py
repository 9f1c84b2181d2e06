"""R2D2 trained on two devices while a third one acts (a process of its own: logical devices)."""

import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    import numpy as np
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 3
    )
    from seed_rl.agents.r2d2.config import R2D2Config
    from seed_rl.common.learner import variables
    from seed_rl.common.learner.devices import make_devices
    from seed_rl.common.config.device_config import DeviceConfig
    from seed_rl.testing.envs import LifeStepEnv
    from tests.helpers.in_process import Run

    placement = make_devices(
        DeviceConfig(inference_devices="cpu:0", training_devices="cpu:1,cpu:2")
    )
    config = R2D2Config(burn_in=2, n_steps=2, update_target_every_n_step=2)
    with Run(lambda: LifeStepEnv(5), config, placement=placement) as run:
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
    """
)


def test_two_replicas(repository):
    """Guards batches, feedback and target network with mirrored variables."""
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=repository,
    )
    assert output.returncode == 0, output.stderr
    assert output.stdout.strip() == "fine"
