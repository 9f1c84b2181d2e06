"""Synchronous PPO in PyTorch, twice: what the on-policy benchmark compares with.

    python -m benchmarks.on_policy_contestants --contestant=sb3 --vector=dummy --threads=1

*sb3* is stable-baselines3's PPO; *single_file* is PPO in the single-file style, below. Both do the
work of workload W4 (`benchmarks.workloads`). The program runs in an environment of its own, without
this package's dependencies; `benchmarks.on_policy` says how to make it. It prints the environment
frames per second.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

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
ADAM_EPSILON = 1e-5
OBSERVATION_LIMIT = 10.0

VECTORS = {"sb3": ("dummy", "subproc"), "single_file": ("sync", "async")}
"""The vector environments of each contestant: in its process, or a process for each."""


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
    """Runs one contestant."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--contestant", choices=sorted(VECTORS), required=True)
    parser.add_argument(
        "--vector", choices=[v for vs in VECTORS.values() for v in vs], required=True
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of PyTorch")
    parser.add_argument("--seconds", type=float, default=30)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(args.threads)
    window = Window(args.seconds)
    run = stable_baselines3 if args.contestant == "sb3" else single_file
    run(args.vector, window)
    print(window.iterations_per_s() * NUM_ENVS * STEPS)


def stable_baselines3(vector: str, window: Window) -> None:
    """Trains with stable-baselines3 until the window ends."""
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


def single_file(vector: str, window: Window) -> None:
    """Trains with PPO in the single-file style until the window ends."""
    import gymnasium
    import numpy as np
    import torch
    from gymnasium.wrappers import vector as wrappers
    from torch import nn

    def mlp(outputs: int, last_gain: float) -> nn.Sequential:
        sizes = [observation_size, UNITS, UNITS, outputs]
        layers: list[nn.Module] = []
        for i in range(3):
            linear = nn.Linear(sizes[i], sizes[i + 1])
            nn.init.orthogonal_(linear.weight, last_gain if i == 2 else 2**0.5)
            nn.init.zeros_(linear.bias)
            layers += [linear, nn.Tanh()]
        return nn.Sequential(*layers[:-1])

    def distribution(observation: Any) -> torch.distributions.Independent:
        normal = torch.distributions.Normal(policy(observation), log_std.exp())
        return torch.distributions.Independent(normal, 1)

    env: Any = gymnasium.make_vec(ENV_NAME, NUM_ENVS, vectorization_mode=vector)
    env = wrappers.ClipAction(env)
    env = wrappers.NormalizeObservation(env)
    env = wrappers.TransformObservation(
        env, lambda o: np.clip(o, -OBSERVATION_LIMIT, OBSERVATION_LIMIT).astype(np.float32)
    )
    env = wrappers.NormalizeReward(env, gamma=DISCOUNT)
    observation_size = env.single_observation_space.shape[0]
    action_size = env.single_action_space.shape[0]
    policy, value = mlp(action_size, 0.01), mlp(1, 1.0)
    log_std = nn.Parameter(torch.zeros(action_size))
    parameters = [*policy.parameters(), *value.parameters(), log_std]
    optimizer = torch.optim.Adam(parameters, LEARNING_RATE, eps=ADAM_EPSILON)

    observations = torch.zeros(STEPS, NUM_ENVS, observation_size)
    actions = torch.zeros(STEPS, NUM_ENVS, action_size)
    log_probs, values, rewards, continues = torch.zeros(4, STEPS, NUM_ENVS)
    advantages = torch.zeros(STEPS, NUM_ENVS)
    observation = torch.as_tensor(env.reset(seed=1)[0])

    while window.iteration_begins():
        with torch.no_grad():
            for t in range(STEPS):
                actor = distribution(observation)
                action = actor.sample()
                observations[t], actions[t] = observation, action
                log_probs[t] = actor.log_prob(action)
                values[t] = value(observation).squeeze(-1)
                step, reward, terminated, truncated, _ = env.step(action.numpy())
                observation = torch.as_tensor(step)
                rewards[t] = torch.as_tensor(reward)
                continues[t] = torch.as_tensor(~(terminated | truncated))
            next_value, advantage = value(observation).squeeze(-1), torch.zeros(NUM_ENVS)
            for t in reversed(range(STEPS)):
                delta = rewards[t] + DISCOUNT * continues[t] * next_value - values[t]
                advantage = delta + DISCOUNT * GAE_LAMBDA * continues[t] * advantage
                advantages[t], next_value = advantage, values[t]
        rows = (observations, actions, log_probs, values, advantages, advantages + values)
        flat = [tensor.flatten(0, 1) for tensor in rows]
        for _ in range(EPOCHS):
            for indices in torch.randperm(STEPS * NUM_ENVS).split(MINIBATCH):
                o, a, old_log_prob, old_value, adv, target = (tensor[indices] for tensor in flat)
                ratio = (distribution(o).log_prob(a) - old_log_prob).exp()
                adv = (adv - adv.mean()) / (adv.std() + 1e-8)
                clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
                policy_loss = -torch.min(ratio * adv, clipped * adv).mean()
                new_value = value(o).squeeze(-1)
                near = old_value + (new_value - old_value).clamp(-CLIP, CLIP)
                errors = torch.max((new_value - target) ** 2, (near - target) ** 2)
                loss = policy_loss + VALUE_COST * 0.5 * errors.mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, CLIP_NORM)
                optimizer.step()
    env.close()


if __name__ == "__main__":
    main()
