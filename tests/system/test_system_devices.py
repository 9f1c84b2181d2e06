"""Whole runs whose learner infers on two devices and trains on two others (logical CPUs)."""

from __future__ import annotations

import signal

import pytest

from tests.helpers.system_helpers import site
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.slow

COMMON = ["--env_name=CartPole-v1", "--num_envs=4", "--env_batch_size=2", "--unroll_length=5"]
LEARNER = [
    *("--batch_size=4", "--save_model=false", "--total_environment_frames=1000000"),
    "--inference_devices=cpu:0,cpu:1",
    "--training_devices=cpu:2,cpu:3",
]
R2D2 = [
    *("--burn_in=2", "--replay_buffer_size=200", "--replay_buffer_min_size=20"),
    *("--update_target_every_n_step=10",),
]


@pytest.mark.nightly
@pytest.mark.parametrize("agent", ["vtrace", "r2d2"])
def test_inference_and_mirrored_training_on_devices_of_their_own(tmp_path, socket_address, agent):
    """Trains, saves at the end, and continues from there on one device."""
    module = f"seed_rl.gym.{agent}_main"
    with site(tmp_path, socket_address) as place:
        flags = [f"--server_address={place.address}", *COMMON]

        def start(*options):
            own = [*(R2D2 if agent == "r2d2" else []), *LEARNER, *options]
            return place.start(
                "tests.helpers.programs.many_devices",
                module,
                "--run_mode=learner",
                f"--logdir={place.logdir}",
                *flags,
                *own,
            )

        learner = start()
        for task in range(2):
            place.start(module, "--run_mode=actor", f"--task={task}", *flags)
        wait_until(lambda: place.frames(learner) >= 600, running=learner)
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.text()
        assert "Traceback" not in learner.text()
        frames = place.progress().frames

        learner = start("--inference_devices=cpu:0", "--training_devices=cpu:0")
        wait_until(lambda: place.frames(learner) > frames, running=learner)
        assert f"Resuming after {frames} environment frames" in learner.text()
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.text()
