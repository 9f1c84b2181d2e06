"""Unrolls of real play for the replay benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np

from seed_rl.atari.env import AtariConfig, create_batch
from seed_rl.common import nest
from seed_rl.common.replay import FieldSpec, unroll_specs
from seed_rl.gym.env import create_environment

POLICIES = ("random", "epsilon-greedy")
STEPS, OVERLAP = 121, 41
_ENVS = 8
_STACKED = 3  # Frames before the first of an unroll, which are stacked with it.


def atari_specs() -> Any:
    """What R2D2 stores per unroll of 121 Atari steps."""
    step = {
        "observation": np.zeros((84, 84, 1), np.uint8),
        "reward": np.zeros((), np.float32),
        "done": np.zeros((), np.bool_),
        "abandoned": np.zeros((), np.bool_),
        "episode_step": np.zeros((), np.int32),
        "prev_action": np.zeros((), np.int32),
        "action": np.zeros((), np.int32),
    }
    lstm = [np.zeros(512, np.float32)] * 2
    return unroll_specs(step, STEPS, [*lstm, np.zeros((21, 21, 16 * _STACKED), np.uint8)])


def small_specs() -> Any:
    """Unrolls of 21 CartPole steps."""
    step = {
        "observation": np.zeros(4, np.float32),
        "reward": np.zeros((), np.float32),
        "done": np.zeros((), np.bool_),
        "action": np.zeros((), np.int32),
    }
    return unroll_specs(step, 21)


def first(specs: Any, unrolls: Any, count: int) -> Any:
    """The first `count` unrolls of a time-major batch."""

    def cut(spec: FieldSpec, values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(values[:, :count] if spec.time else values[:count])

    return nest.map_structure(cut, specs, unrolls)


def concatenate(specs: Any, batches: list[Any]) -> Any:
    """Joins several batches."""
    return nest.map_structure(
        lambda spec, *values: np.concatenate(values, axis=1 if spec.time else 0), specs, *batches
    )


def play_atari(game: str, policy: str, num_unrolls: int) -> Any:
    """Plays Atari; returns at least `num_unrolls` unrolls [time, unrolls, ...] of `atari_specs`.

    Args:
      game: name of the game.
      policy: one of `POLICIES`; see `benchmarks.replay`.
      num_unrolls: minimum number of unrolls.
    """
    rng = np.random.default_rng(0)
    stride = STEPS - OVERLAP
    steps = STEPS + stride * (-(-num_unrolls // _ENVS) - 1)
    envs = create_batch(np.arange(_ENVS), AtariConfig(game=game))
    q_weights = rng.normal(size=(84 * 84, envs.action_space.n))
    epsilons = np.ones(_ENVS) if policy == "random" else 0.4 ** np.linspace(1, 8, _ENVS)
    none, zero = np.zeros(_ENVS, np.bool_), np.zeros(_ENVS, np.int32)
    step = (envs.reset(seed=1), np.zeros(_ENVS, np.float32), none, none, zero)
    prev_action, trace = zero, []
    for _ in range(steps):
        greedy = np.argmax((step[0].reshape(_ENVS, -1) - 128.0) @ q_weights, axis=1)
        random = rng.integers(envs.action_space.n, size=_ENVS)
        action = np.where(rng.random(_ENVS) < epsilons, random, greedy).astype(np.int32)
        trace.append([np.array(part) for part in (*step, prev_action, action)])
        taken = envs.step(action)
        step = (taken.observation, taken.reward, taken.done, taken.abandoned, taken.episode_step)
        prev_action = action
    envs.close()
    names = ("observation", "reward", "done", "abandoned", "episode_step", "prev_action", "action")
    whole = dict(zip(names, map(np.stack, zip(*trace, strict=True)), strict=True))
    starts = range(0, steps - STEPS + 1, stride)
    cut = {
        name: np.concatenate([array[start : start + STEPS] for start in starts], axis=1)
        for name, array in whole.items()
    }
    # LSTM activations hardly compress, so noise represents them.
    states = [np.tanh(rng.normal(size=(len(starts) * _ENVS, 512))) for _ in range(2)]
    stacks = [_frames_before(whole["observation"], whole["done"], start) for start in starts]
    return [*(state.astype(np.float32) for state in states), np.concatenate(stacks)], cut


def _frames_before(observations: np.ndarray, done: np.ndarray, start: int) -> np.ndarray:
    """The frame stacking state of `ImageEncoder` before a step; frames of earlier episodes are 0.

    Args:
      observations: <uint8>[time, envs, 84, 84, 1].
      done: <bool>[time, envs].
      start: index of the step.
    """
    stack = np.zeros((_ENVS, 21, 21, 16 * _STACKED), np.uint8)
    for i, step in enumerate(range(start - _STACKED, start)):
        if step < 0:
            continue
        same_episode = ~done[step + 1 : start].any(axis=0)
        blocks = observations[step].reshape(_ENVS, 21, 4, 21, 4).transpose(0, 1, 3, 2, 4)
        blocks = blocks.reshape(_ENVS, 21, 21, 16)
        stack[same_episode, ..., 16 * i : 16 * (i + 1)] = blocks[same_episode]
    return stack


def play_small(num_unrolls: int) -> Any:
    """Plays CartPole at random; returns unrolls [21, unrolls, ...] of `small_specs`."""
    env = create_environment(0, {"env_name": "CartPole-v1"})
    rng = np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    trace, reward, done = [], np.float32(0), False
    for _ in range(21 * num_unrolls):
        action = int(rng.integers(2))
        trace.append((observation, reward, done, np.int32(action)))
        observation, raw_reward, terminated, truncated, _ = env.step(action)
        reward = np.float32(raw_reward)
        done = terminated or truncated
        if done:
            observation, _ = env.reset()
    names = ("observation", "reward", "done", "action")
    columns = zip(*trace, strict=True)
    return {
        name: np.stack(column).reshape(num_unrolls, 21, -1).swapaxes(0, 1).squeeze()
        for name, column in zip(names, columns, strict=True)
    }
