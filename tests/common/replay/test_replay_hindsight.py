"""Hindsight replay: which goals are replaced, by what, and what happens to rewards."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from seed_rl.common import nest
from seed_rl.common.replay import Hindsight, unroll_specs
from seed_rl.common.types import EnvOutput

W, N = 12, 400


class Window(NamedTuple):
    agent_state: Any
    prev_actions: Any
    env_outputs: EnvOutput


def reward_of(achieved_goal, desired_goal):
    """Different for any two goals, so that a wrong argument shows."""
    return achieved_goal[:, 0] * 0.01 - desired_goal[:, 1] * 2.0


def windows(done_probability=0.2):
    """Every achieved goal is unique: [index of the step in all windows, its negative]."""
    rng = np.random.default_rng(0)
    done = rng.random((W + 1, N)) < done_probability
    number = np.arange((W + 1) * N, dtype=np.float32).reshape(W + 1, N)
    episode = np.cumsum(done, axis=0)
    goal = np.stack([episode * 1e6 + np.arange(N), -number[0] + episode], -1).astype(np.float32)
    observation = {
        "observation": number[..., None],
        "achieved_goal": np.stack([number, -number], -1),
        "desired_goal": goal,
    }
    reward = rng.normal(size=(W + 1, N)).astype(np.float32)
    abandoned = done & (rng.random(done.shape) < 0.5)
    steps = np.zeros((W + 1, N), np.int32)
    state = np.arange(N, dtype=np.float32)
    return Window(state, number * 2, EnvOutput(reward, done, observation, abandoned, steps))


@pytest.mark.parametrize("length", [1, 4, W])
@pytest.mark.parametrize("probability", [0.0, 0.8, 1.0])
def test_parts_and_goals(length, probability):
    """Guards every property of the relabelling, for all parts at once."""
    before = windows()
    original = nest.map_structure(np.copy, before)
    part = Hindsight(reward_of, length, probability, seed=1)(before)
    for a, b in zip(nest.flatten(before), nest.flatten(original), strict=True):
        np.testing.assert_array_equal(a, b)  # What is in the replay's memory is not changed.
    np.testing.assert_array_equal(part.agent_state, original.agent_state)
    env = part.env_outputs
    number = env.observation["observation"][..., 0].astype(int)
    assert number.shape == (length + 1, N)
    columns = np.arange(N)
    rows = number // N
    assert (number % N == columns).all() and (np.diff(rows, axis=0) == 1).all()
    assert set(rows[0]) == set(range(W - length + 1))
    np.testing.assert_array_equal(part.prev_actions, number * 2)
    np.testing.assert_array_equal(env.done, original.env_outputs.done[rows, columns])

    all_done = original.env_outputs.done
    old = original.env_outputs.observation["desired_goal"][rows, columns]
    new = env.observation["desired_goal"]
    replaced = (new != old).any(-1)
    candidates = 0
    for i in range(N):
        # The last episode of the part, and whether it has an action.
        start = max([t for t in range(length + 1) if env.done[t, i]], default=0)
        candidates += start < length
        for t in range(length + 1):
            later_end = rows[t, i]
            while later_end < W and not all_done[later_end + 1, i]:
                later_end += 1
            if replaced[t, i]:
                assert t >= start and start < length
                assert (new[t, i] == new[-1, i]).all()
                source = int(new[t, i, 0]) // N
                assert int(new[t, i, 0]) % N == i and new[t, i, 1] == -new[t, i, 0]
                assert rows[-1, i] <= source <= later_end
                assert replaced[t:, i].all() and replaced[start:, i].all()
            if t < length and env.done[t + 1, i]:
                assert not replaced[t, i]
            if t == 0:
                assert env.reward[0, i] == original.env_outputs.reward[rows[0, i], i]
                continue
            expected = original.env_outputs.reward[rows[t, i], i]
            if replaced[t - 1, i]:
                achieved = env.observation["achieved_goal"][t, i][None]
                change = reward_of(achieved, new[t - 1, i][None])
                expected += (change - reward_of(achieved, old[t - 1, i][None]))[0]
            np.testing.assert_allclose(env.reward[t, i], expected, rtol=1e-4, atol=1e-2)
    fraction = replaced[-1].sum() / candidates
    assert fraction == pytest.approx(probability, abs=0.08)


@pytest.mark.parametrize("dtype", [bool, np.uint8])
def test_rewards_may_be_bools_or_bytes(dtype):
    """Guards rewards that get smaller: 0 - 1 of bytes is 255."""

    def reaches(kind):
        return lambda achieved_goal, desired_goal: (
            (achieved_goal == desired_goal).all(-1).astype(kind)
        )

    before = windows()
    before.env_outputs.observation["achieved_goal"] %= 3  # Some goals are reached by accident.
    before.env_outputs.observation["desired_goal"] %= 3
    parts = [Hindsight(reaches(kind), 1, 1.0, seed=0)(before) for kind in (np.float32, dtype)]
    expected, rewards = (part.env_outputs.reward for part in parts)
    np.testing.assert_array_equal(rewards, expected)


def test_every_later_step_is_chosen():
    """Guards the strategy `future`: any later step of the episode, among them the very next."""
    part = Hindsight(reward_of, 1, 1.0, seed=0)(windows(done_probability=0.0))
    observation = part.env_outputs.observation
    ahead = (observation["desired_goal"][0, :, 0] - observation["observation"][0, :, 0]) // N
    assert set(ahead.astype(int)) == set(range(1, W + 1))


def test_part_specs():
    """Guards the shapes announced to the dataset."""
    original = windows()
    steps = nest.map_structure(lambda a: a[0, 0], original._replace(agent_state=()))
    state, specs = unroll_specs(steps, W + 1, original.agent_state[0])
    hindsight = Hindsight(reward_of, 3, 0.5)
    announced = hindsight.part_specs(specs._replace(agent_state=state))
    part = hindsight(original)
    for spec, array in zip(nest.flatten(announced), nest.flatten(part), strict=True):
        assert spec.batch_shape(N) == array.shape
