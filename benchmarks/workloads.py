"""What the training benchmarks train."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
from typing import Any

from seed_rl.common.acting.environment_family import EnvironmentFamily


@dataclasses.dataclass(frozen=True)
class Workload:
    """What is trained.

    Attributes:
      about: description.
      family: package of the environments; `seed_rl.FAMILY.AGENT_main` is run.
      agent: `vtrace`, `r2d2` or `ppo`.
      unroll_length: steps per unroll.
      batch_size: unrolls per gradient step.
      network: network flags; none if a gin config describes the network.
      env: flags of the environment.
      flags: further flags.
      num_envs: environments of all actors.
      actors: number of actors by default.
      frames_per_transition: environment frames per action.
    """

    about: str
    family: str
    agent: str
    unroll_length: int
    batch_size: int
    network: dict[str, Any] = dataclasses.field(default_factory=dict)
    env: dict[str, Any] = dataclasses.field(default_factory=dict)
    flags: dict[str, Any] = dataclasses.field(default_factory=dict)
    num_envs: int = 16
    actors: int = 4
    frames_per_transition: int = 4

    @property
    def program(self) -> str:
        """The module of learners and actors."""
        return f"seed_rl.{self.family}.{self.agent}_main"

    @property
    def all_flags(self) -> dict[str, Any]:
        """Those of network, environment and training."""
        sizes = {"unroll_length": self.unroll_length, "batch_size": self.batch_size}
        return {**self.network, **self.env, **self.flags, **sizes}

    @property
    def unrolls_per_step(self) -> int:
        """Unrolls of a training step."""
        return int(self.batch_size * self.flags.get("batches_per_step", 1))

    def environments(self) -> EnvironmentFamily:
        """The environments as the program creates them."""
        family: EnvironmentFamily = importlib.import_module(self.program).FAMILY
        return family


_NATURE = {"torso": "nature", "stack_size": 4}
_DEEP = {"torso": "impala_deep", "lstm_sizes": (256,), "stack_size": 4}
_R2D2 = {"torso": "nature", "lstm_size": 512, "stack_size": 4}
_PONG = {"game": "Pong"}
# A small replay that never runs empty; its size hardly affects speed. Neither acting nor training
# may run ahead, or the measured window would contain less of one than of the other.
REPLAY: dict[str, Any] = {
    "replay_buffer_size": 2000,
    "replay_buffer_min_size": 64,
    "replay_ratio": 1.0,
    "replay_ratio_slack": 16,
}
"""The replay of R2D2."""

WORKLOADS = {
    "W1": Workload(
        "V-trace on Pong, Nature CNN, unroll 20, batch 32, 16 environments",
        "atari",
        "vtrace",
        unroll_length=20,
        batch_size=32,
        network=_NATURE,
        env=_PONG,
    ),
    "W2": Workload(
        "V-trace on Pong, IMPALA deep network with LSTM 256, unroll 20, batch 32, 16 environments",
        "atari",
        "vtrace",
        unroll_length=20,
        batch_size=32,
        network=_DEEP,
        env=_PONG,
    ),
    "W3": Workload(
        "R2D2 on Pong, Nature CNN with LSTM 512, unroll 40, burn-in 20, batch 16, "
        "16 environments, each transition trained on once",
        "atari",
        "r2d2",
        unroll_length=40,
        batch_size=16,
        network=_R2D2,
        env=_PONG,
        flags={"burn_in": 20, **REPLAY},
    ),
    "W4": Workload(
        "PPO on HalfCheetah, policy and value networks of 2 x 64, 256 environments, "
        "training steps of 32 steps each, 10 epochs, minibatches of 512",
        "mujoco",
        "ppo",
        unroll_length=32,
        batch_size=16,
        env={"env_name": "HalfCheetah-v5"},
        flags={"epochs_per_step": 10, "batches_per_step": 16},
        num_envs=256,
        actors=8,
        frames_per_transition=1,
    ),
    "W5": Workload(
        "PPO on HalfCheetah, W4 with the preset's sizes: training steps of 2,048 transitions, "
        "minibatches of 64; 32 environments",
        "mujoco",
        "ppo",
        unroll_length=64,
        batch_size=1,
        env={"env_name": "HalfCheetah-v5"},
        flags={"epochs_per_step": 10, "batches_per_step": 32},
        num_envs=32,
        actors=2,
        frames_per_transition=1,
    ),
    "W6": Workload(
        "PPO on Pong with the preset's sizes: training steps of 2,048 transitions, 4 epochs, "
        "minibatches of 64",
        "atari",
        "ppo",
        unroll_length=64,
        batch_size=1,
        network=_NATURE,
        env={**_PONG, "episodic_life": True, "full_action_space": False},
        flags={"batches_per_step": 32},
    ),
    "W7": Workload(
        "V-trace with the paper's network for DeepMind Lab, on random frames of its size",
        "gym",
        "vtrace",
        unroll_length=100,
        batch_size=32,
        network={"torso": "impala_deep", "lstm_sizes": (256,), "stack_size": 1},
        env={"env_name": "benchmarks.random_frames:RandomFrames", "num_action_repeats": 4},
    ),
}
"""All workloads, by name."""


def chosen(args: argparse.Namespace) -> Workload:
    """The workload that a benchmark's options name, with their number of environments."""
    workload = WORKLOADS[args.workload]
    return dataclasses.replace(workload, num_envs=args.num_envs or workload.num_envs)
