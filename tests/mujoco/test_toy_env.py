"""Toy environments: their optimal returns are reached by an optimal policy, not by a random one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from seed_rl.mujoco.toy_env import BitFlippingEnv, ToyEnv, ToyMemoryEnv

Policy = Callable[[Any], int]


def episode(env: Any, policy: Policy, seed: int | None = None) -> list[Any]:
    """The steps (observation, reward, terminated, truncated, info) of one episode."""
    observation, _ = env.reset(seed=seed)
    steps: list[Any] = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        assert env.observation_space.contains(observation)
        steps.append(env.step(policy(observation)))
        observation = steps[-1][0]
    return steps


def returns(env: Any, policy: Policy, episodes: int = 300) -> list[float]:
    env.action_space.seed(0)
    env.reset(seed=0)
    return [sum(step[1] for step in episode(env, policy)) for _ in range(episodes)]


def name_the_cue(observation: np.ndarray) -> int:
    return int(np.argmax(observation))


def remember_the_cue() -> Policy:
    seen: list[int] = []

    def act(observation: np.ndarray) -> int:
        if observation[:-1].any():
            seen.append(int(np.argmax(observation[:-1])))
        return seen[-1]

    return act


@pytest.mark.parametrize(("horizon", "n_actions"), [(1, 2), (3, 3), (7, 5)])
def test_toy(horizon: int, n_actions: int) -> None:
    """The best return is `horizon`; chance gives a share of 1 / n_actions."""
    env = ToyEnv(horizon, n_actions)
    assert set(returns(env, name_the_cue)) == {horizon}
    chance = np.mean(returns(env, lambda _: env.action_space.sample(), 1000))
    assert chance == pytest.approx(horizon / n_actions, rel=0.2)


def test_toy_ends_by_termination() -> None:
    steps = episode(ToyEnv(4, 2), lambda _: 0)
    assert [step[2] for step in steps] == [False, False, False, True]
    assert not any(step[3] for step in steps)


def test_memory_is_needed() -> None:
    """Without memory of the cue, the best that can be done is to guess."""
    env = ToyMemoryEnv(4, 3)
    assert set(returns(env, remember_the_cue())) == {1}
    for policy in (name_the_cue, lambda _: env.action_space.sample()):
        guessed = np.mean(returns(env, lambda o, p=policy: p(o) % 3, 1000))
        assert guessed == pytest.approx(1 / 3, abs=0.06)


def test_the_cue_of_the_memory_task_is_shown_once() -> None:
    """First step: the cue. Last: the signal that the action counts. Between: nothing."""
    env = ToyMemoryEnv(4, 3)
    first, _ = env.reset(seed=0)
    assert first[:-1].sum() == 1 and first[-1] == 0
    rest = [env.step(0) for _ in range(4)]
    np.testing.assert_array_equal(
        [step[0] for step in rest[:3]], [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    )
    assert [step[2] for step in rest] == [False, False, False, True]
    assert [step[1] for step in rest[:3]] == [0, 0, 0]


def flip_a_wrong_bit(observation: dict[str, np.ndarray]) -> int:
    """A shortest way to the goal; there, any bit."""
    return int(np.argmax(observation["observation"] != observation["desired_goal"]))


def test_bit_flipping_is_solved_by_the_shortest_way_and_not_by_chance() -> None:
    env = BitFlippingEnv()

    def solved(policy: Policy) -> float:
        env.action_space.seed(0)
        env.reset(seed=0)
        scores = [sum(s[4]["score_reward"] for s in episode(env, policy)) for _ in range(300)]
        assert set(scores) <= {0, 1}
        return float(np.mean(scores))

    assert solved(flip_a_wrong_bit) == 1
    assert solved(lambda _: env.action_space.sample()) < 0.1


def test_bit_flipping_goes_on_at_the_goal_and_is_truncated() -> None:
    """Neither rewards nor ends depend on anything but bits and goal, as hindsight requires."""
    steps = episode(BitFlippingEnv(4, 9), flip_a_wrong_bit, seed=1)
    assert len(steps) == 9
    assert not any(step[2] for step in steps)
    assert [step[3] for step in steps] == [False] * 8 + [True]
    for observation, reward, _, _, info in steps:
        equal = bool(np.all(observation["achieved_goal"] == observation["desired_goal"]))
        assert reward == (0 if equal else -1)
        assert info["is_success"] == equal


def test_an_action_flips_its_bit_and_no_other() -> None:
    env = BitFlippingEnv(5, 20)
    before, _ = env.reset(seed=0)
    for action in (0, 3, 3, 4):
        after = env.step(action)[0]
        np.testing.assert_array_equal(
            np.nonzero(before["observation"] != after["observation"])[0], [action]
        )
        np.testing.assert_array_equal(after["achieved_goal"], after["observation"])
        np.testing.assert_array_equal(after["desired_goal"], before["desired_goal"])
        before = after  # Would be the same arrays if the environment returned its own.


def test_rewards_of_many_goals_at_once() -> None:
    """`compute_reward` broadcasts over leading dimensions."""
    env = BitFlippingEnv(3)
    bits = np.array(list(itertools.product([0, 1], repeat=3)), np.float32)
    rewards = env.compute_reward(bits[:, np.newaxis], bits[np.newaxis], info={})
    assert rewards.dtype == np.float32
    np.testing.assert_array_equal(rewards, np.eye(8) - 1)
    np.testing.assert_array_equal(env.compute_reward(bits.reshape(2, 4, 3), bits[0]).shape, (2, 4))
    assert env.compute_reward(bits[5], bits[5]) == 0
    assert env.compute_reward(bits[5], bits[4]) == -1


@pytest.mark.parametrize("make", [ToyEnv, ToyMemoryEnv, BitFlippingEnv])
def test_seeds_and_pictures(make: Callable[[], Any]) -> None:
    """The same seed gives the same episodes; pictures are what videos are made of."""
    one, other = make(), make()
    for seed in (0, 1):
        a, b = (episode(env, lambda _: 1, seed) for env in (one, other))
        np.testing.assert_equal([step[:2] for step in a], [step[:2] for step in b])
    one.reset(seed=0)
    picture = one.render()
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.any()
