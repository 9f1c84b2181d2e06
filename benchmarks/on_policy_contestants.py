"""PPO of stable-baselines3, with which the on-policy benchmark compares.

    python -m benchmarks.on_policy_contestants --vector=dummy --threads=1

It does the work of workload W4 (`benchmarks.workloads`). The program runs in an environment of its
own, without this package's dependencies; `benchmarks.on_policy` says how to make it. It prints the
environment frames per second.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

ENV_NAME = "HalfCheetah-v5"
NUM_ENVS = 256
STEPS = 32
EPOCHS = 10
MINIBATCH = 512
UNITS = 64
DISCOUNT = 0.99
GAE_LAMBDA = 0.95
CLIP = 0.2
VALUE_COST = 0.5
CLIP_NORM = 0.5
LEARNING_RATE = 3e-4
OBSERVATION_LIMIT = 10.0

VECTORS = ("dummy", "subproc")
"""The vector environments: in its process, or a process for each."""


class Window:
    """Counts whole iterations, after the first few, for a while."""

    def __init__(
        self, seconds: float, warmup: int = 2, clock: Callable[[], float] = time.perf_counter
    ):
        """Begins with the first call of `iteration_begins`.

        Args:
          seconds: how long to measure, at least.
          warmup: iterations that do not count.
          clock: seconds.
        """
        self._seconds = seconds
        self._warmup = warmup
        self._clock = clock
        self._begun = 0
        self._start = self._last = 0.0

    def iteration_begins(self) -> bool:
        """Call it at the start of each iteration; returns whether to do another."""
        self._last = self._clock()
        if self._begun == self._warmup:
            self._start = self._last
        self._begun += 1
        measured = self._begun - self._warmup - 1
        return measured < 1 or self._last - self._start < self._seconds

    def iterations_per_s(self) -> float:
        """Of the iterations that were completed after the warm-up."""
        return (self._begun - self._warmup - 1) / (self._last - self._start)


def main() -> None:
    """Runs the contestant."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--vector", choices=VECTORS, required=True)
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--seconds", type=float, default=30)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    window = Window(args.seconds)
    train(args.vector, window)
    print(window.iterations_per_s() * NUM_ENVS * STEPS)


def train(vector: str, window: Window) -> None:
    """Trains until the window ends."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
    from torch import nn

    class _Timer(BaseCallback):
        """Stops training when the window ends."""

        goes_on = True

        def _on_rollout_start(self) -> None:
            self.goes_on = window.iteration_begins()

        def _on_step(self) -> bool:
            return self.goes_on

    makers = [functools.partial(gymnasium.make, ENV_NAME)] * NUM_ENVS
    # A fresh interpreter for each of 256 processes would take minutes to start.
    env = DummyVecEnv(makers) if vector == "dummy" else SubprocVecEnv(makers, "fork")
    model = PPO(
        "MlpPolicy",
        VecNormalize(env, gamma=DISCOUNT, clip_obs=OBSERVATION_LIMIT),
        learning_rate=LEARNING_RATE,
        n_steps=STEPS,
        batch_size=MINIBATCH,
        n_epochs=EPOCHS,
        gamma=DISCOUNT,
        gae_lambda=GAE_LAMBDA,
        clip_range=CLIP,
        vf_coef=VALUE_COST,
        max_grad_norm=CLIP_NORM,
        policy_kwargs={
            "net_arch": {"pi": [UNITS, UNITS], "vf": [UNITS, UNITS]},
            "activation_fn": nn.Tanh,
        },
        device="cpu",
    )
    model.learn(10**12, callback=_Timer())
    env.close()


if __name__ == "__main__":
    main()
