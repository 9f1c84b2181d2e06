"""The episode protocol of batched environments."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting.batched_env import (
    BatchedEnvironment,
    EnvironmentFailure,
    env_seeds,
    playing_seed,
)
from seed_rl.common.acting.env_group import Environments, env_groups
from seed_rl.common.acting.rewards import describe_ids
from seed_rl.common.errors import UserError
from seed_rl.testing import envs

Report = collections.namedtuple(
    "Report", "reward done abandoned episode_step raw_reward observation"
)


def test_environments_may_have_any_ids() -> None:
    """Guards actors that get the ids of others that died, which may not be consecutive."""
    made = Environments(lambda env_id, _: envs.LifeStepEnv())
    with env_groups(made, np.int32([2, 5, 6]), 1) as (group,):
        assert group.env.env_ids.tolist() == [2, 5, 6]
    assert describe_ids([2, 5, 6]) == "2, 5, 6" and describe_ids([2, 3, 4]) == "2 to 4"


def plain_loop(env: Any, actions: list[int]) -> list[Report]:
    """What the protocol says of one environment, written down as straightforwardly as possible."""
    observation, _ = env.reset()
    reports = [Report(0.0, False, False, 0, 0.0, observation[1:])]
    actions = list(actions)
    step = 0
    while actions:
        observation, reward, terminated, truncated, info = env.step(actions.pop(0))
        step += 1
        if terminated:
            step = 0
            observation, _ = env.reset()
        report = Report(reward, terminated, False, step, info["score_reward"], observation[1:])
        reports.append(report)
        if truncated and not terminated and actions:
            actions.pop(0)  # The learner answers, but its action is ignored.
            step = 0
            observation, _ = env.reset()
            reports.append(Report(0.0, True, True, 0, 0.0, observation[1:]))
    return reports


def run_batch(env: Any, actions: np.ndarray) -> list[list[Report]]:
    """The same through the batched environment; actions are [time, k]."""
    size = actions.shape[1]
    observation = env.reset()
    runs = [[Report(0.0, False, False, 0, 0.0, observation[i, 1:].copy())] for i in range(size)]
    for action in actions:
        step = env.step(action)
        for i, run in enumerate(runs):
            run.append(
                Report(
                    step.reward[i],
                    step.done[i],
                    step.abandoned[i],
                    step.episode_step[i],
                    step.raw_reward[i],
                    step.observation[i, 1:].copy(),
                )
            )
    return runs


def assert_same(actual: list[Report], expected: list[Report]) -> None:
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a.observation, e.observation)
        assert a[:-1] == e[:-1]


ENVS = {  # By env id: terminating and truncated episodes of different lengths.
    0: (3, False),
    1: (4, True),
    2: (1, True),
    3: (1, False),
    4: (7, True),
}


def make(env_id: int, config: Any = None) -> envs.LifeStepEnv:
    return envs.LifeStepEnv(*ENVS[env_id])


@pytest.mark.parametrize(("first", "size"), [(0, 1), (1, 1), (2, 1), (0, 3), (0, 5), (2, 3)])
def test_equals_a_plain_loop_for_any_batch(first: int, size: int) -> None:
    """Neighbours in the batch change nothing, whatever ends when and however."""
    actions = np.random.default_rng(0).integers(2, size=(40, size))
    runs = run_batch(BatchedEnvironment(make, size, first, None), actions)
    for i, run in enumerate(runs):
        assert_same(run, plain_loop(make(first + i), actions[:, i].tolist()))


def test_abandoned_sequence_in_full() -> None:
    """Pins the sequence itself, so that oracle and code cannot be wrong together."""
    env = BatchedEnvironment(lambda i, c: envs.LifeStepEnv(2, truncate=True), 1, 0)
    ((_, *seen),) = run_batch(env, np.array([[1], [1], [0], [1]]))
    assert [(*report[:-1], report.observation.tolist()) for report in seen] == [
        (1, False, False, 1, 10, [0, 1, 1]),
        (2, False, False, 2, 20, [0, 2, 1]),  # The last of the episode; not done yet.
        (0, True, True, 0, 0, [1, 0, -1]),  # The action 0 was ignored.
        (1, False, False, 1, 10, [1, 1, 1]),
    ]


def test_termination_wins_over_truncation() -> None:
    """An environment may say both at its limit: there is nothing left to bootstrap from."""

    class Both(envs.LifeStepEnv):
        def step(self, action: int) -> Any:
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, terminated, info

    env = BatchedEnvironment(lambda i, c: Both(1), 1, 0)
    env.reset()
    step = env.step(np.array([0]))
    assert step.done[0] and not step.abandoned[0]


def test_reset_forgets_a_pending_truncation() -> None:
    """A new life must not begin with the end of the old one."""
    env = BatchedEnvironment(lambda i, c: envs.LifeStepEnv(1, truncate=True), 1, 0)
    env.reset()
    env.step(np.array([0]))
    env.reset()
    step = env.step(np.array([1]))
    assert not step.done[0] and step.reward[0] == 1


def test_ids_and_config_reach_the_environments() -> None:
    made = []

    def create(env_id: int, config: Any) -> envs.LifeStepEnv:
        made.append((env_id, config))
        return envs.LifeStepEnv()

    env = BatchedEnvironment(create, 3, 6, "config")
    assert made == [(6, "config"), (7, "config"), (8, "config")]
    assert env.env_ids.tolist() == [6, 7, 8] and env.env_ids.dtype == np.int32
    assert len(env.envs) == 3


def test_structured_observations_and_actions() -> None:
    """Dict and Tuple spaces travel as batched nests; float64 becomes float32."""
    env = BatchedEnvironment(lambda i, c: envs.DictEnv(), 2, 0)
    observation = env.reset(seed=1)
    assert observation["image"].shape == (2, 8, 8, 3)
    assert observation["goal"].tolist() == [e._goal for e in env.envs]
    assert observation["body"][0].dtype == np.float32
    goals = observation["goal"].copy()
    step = env.step({"move": goals, "force": np.array([[1, 1], [-1, 1]], np.float32)})
    assert step.reward.tolist() == [2, 1]


@pytest.mark.parametrize(("fault", "method"), [("raise", "step"), ("raise_in_reset", "reset")])
def test_failure_names_environment_and_keeps_the_cause(fault: str, method: str) -> None:
    at = 2

    def create(env_id: int, config: Any) -> Any:
        return envs.FaultyEnv(fault if env_id == 5 else "", at, episode_length=1)

    env = BatchedEnvironment(create, 2, 4)
    env.reset()
    with pytest.raises(EnvironmentFailure, match=f"Environment 5 raised in {method}") as failure:
        for _ in range(2):
            env.step(np.zeros(2, np.int64))
    assert isinstance(failure.value.__cause__, RuntimeError)


def test_user_errors_of_environments_stay_user_errors() -> None:
    """A missing package is for the user to fix, however late the environment notices."""

    class Lacking(envs.LifeStepEnv):
        def step(self, action: int) -> Any:
            raise UserError("Install it with: pip install thing")

    env = BatchedEnvironment(lambda i, c: Lacking(), 1, 0)
    env.reset()
    with pytest.raises(UserError, match="pip install thing"):
        env.step(np.array([0]))


@pytest.mark.parametrize("fault", ["shape", "dtype"])
def test_observation_that_leaves_its_space(fault: str) -> None:
    """NumPy would broadcast or convert silently; the learner would train on garbage."""
    env = BatchedEnvironment(lambda i, c: envs.FaultyEnv(fault, 1), 1, 3)
    env.reset()
    with pytest.raises(UserError, match=r"Environment 3.*expected float32\[4\]"):
        env.step(np.array([0]))


class Paid(envs.LifeStepEnv):
    """Pays the same reward in every step, with an `info` of the test's choice."""

    def __init__(self, reward: Any, **info: Any):
        super().__init__()
        self._paid, self._info = reward, info

    def step(self, action: int) -> Any:
        observation, _, terminated, truncated, _ = super().step(action)
        return observation, self._paid, terminated, truncated, self._info


@pytest.mark.parametrize(
    "reward", [0.5, 2, True, np.float64(0.5), np.float32(-2), np.int64(3), np.array(0.5), np.nan]
)
def test_rewards_that_are_numbers(reward: Any) -> None:
    """Guards what environments may pay; NaN is a number too, which the learner deals with."""
    env = BatchedEnvironment(lambda i, c: Paid(reward), 2, 0)
    env.reset()
    step = env.step(np.zeros(2, np.int64))
    np.testing.assert_array_equal(step.reward, np.full(2, float(reward), np.float32))
    np.testing.assert_array_equal(step.raw_reward, step.reward)


@pytest.mark.parametrize(
    ("reward", "shown"),
    [
        (None, "None"),
        ("1.0", "'1.0'"),
        (np.ones(1), r"shape \[1\]"),
        ([0.5], r"shape \[1\]"),
        (1j, "1j"),
        ({}, "{}"),
    ],
)
def test_rewards_that_are_no_numbers(reward: Any, shown: str) -> None:
    """Guards against None that becomes NaN, and against arrays that NumPy takes for numbers."""
    env = BatchedEnvironment(lambda i, c: Paid(reward if i == 4 else 0.0), 2, 3)
    env.reset()
    with pytest.raises(UserError, match=f"Environment 4: its reward is .*{shown}.*number"):
        env.step(np.zeros(2, np.int64))
    env = BatchedEnvironment(lambda i, c: Paid(0.0, score_reward=reward), 1, 3)
    env.reset()
    with pytest.raises(UserError, match="Environment 3: its score_reward is"):
        env.step(np.zeros(1, np.int64))


def test_nest_of_another_structure() -> None:
    class Forgetful(envs.DictEnv):
        def _observation(self) -> Any:
            observation = super()._observation()
            del observation["goal"]
            return observation

    env = BatchedEnvironment(lambda i, c: Forgetful(), 1, 0)
    with pytest.raises(UserError, match="different structure"):
        env.reset()


@pytest.mark.parametrize(
    ("space", "bad"),
    [
        (spaces.Discrete(2), [2]),
        (spaces.Discrete(2), [-1]),
        (spaces.Discrete(2), [0, 1]),
        (spaces.Discrete(2), [0.5]),
        (spaces.Discrete(2, start=3), [1]),
        (spaces.MultiDiscrete([2, 3]), [[0, 3]]),
        (spaces.MultiBinary(2), [[0, 2]]),
        (spaces.Box(-1, 1, (2,)), [[0.0]]),
        (spaces.Tuple([spaces.Discrete(2)]), [0]),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": [0]}),
    ],
)
def test_action_outside_the_space(space: Any, bad: Any) -> None:
    """A learner with another action space is distinguished from a bug in the environment."""
    env = envs.LifeStepEnv()
    env.action_space = space
    batch = BatchedEnvironment(lambda i, c: env, 1, 0)
    batch.reset()
    with pytest.raises(UserError, match="action space"):
        batch.step(bad if isinstance(bad, dict) else np.array(bad))


@pytest.mark.parametrize(
    ("space", "batch", "expected"),
    [
        (spaces.Discrete(3), np.array([2, 0], np.int32), [2, 0]),
        (spaces.Discrete(2, start=5), np.array([6, 5]), [6, 5]),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, 2], [0, 0]], np.int32), [[1, 2], [0, 0]]),
        (spaces.MultiBinary(2), np.array([[1, 0], [0, 1]], np.int64), [[1, 0], [0, 1]]),
        (spaces.Box(-1, 1, (1,)), np.array([[0.5], [-1]], np.float32), [[0.5], [-1]]),
    ],
)
def test_actions_reach_the_environments_in_their_space(
    space: Any, batch: np.ndarray, expected: list[Any]
) -> None:
    received = []

    class Recorder(envs.LifeStepEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = space

        def step(self, action: Any) -> Any:
            received.append(action)
            return super().step(0)

    env = BatchedEnvironment(lambda *_: Recorder(), 2, 0)
    env.reset()
    env.step(batch)
    assert all(space.contains(action) for action in received)
    np.testing.assert_array_equal(np.array(received), expected)


def test_seeds_differ_between_environments_and_repeat() -> None:
    ids = np.arange(100)
    seeds = env_seeds(7, ids)
    assert len(set(seeds)) == 100
    assert seeds == env_seeds(7, ids) and seeds[50] == env_seeds(7, np.array([50]))[0]
    assert not set(seeds) & set(env_seeds(8, ids))
    assert env_seeds(None, ids[:2]) == [None, None]
    assert not set(seeds) & set(env_seeds(playing_seed(7), ids)) and playing_seed(None) is None


def test_created_environments_are_closed_if_a_later_one_fails() -> None:
    """A half-made batch must not leave simulators running."""
    closed = []

    class Closing(envs.LifeStepEnv):
        def close(self) -> None:
            closed.append(True)

    def create(env_id: int, config: Any) -> Any:
        if env_id == 2:
            raise RuntimeError("no more licences")
        return Closing()

    with pytest.raises(RuntimeError, match="licences"):
        BatchedEnvironment(create, 3, 0)
    assert closed == [True, True]


def test_environments_of_different_spaces_are_refused() -> None:
    """Guards against actions that mean something else in some of them."""

    class Choices(envs.LifeStepEnv):
        def __init__(self, number: int):
            super().__init__()
            self.action_space = spaces.Discrete(number)

    message = "Environment 4 has .* 3 choices from 0, but environment 2 has .* 2 choices"
    with pytest.raises(UserError, match=message):
        BatchedEnvironment(lambda env_id, _: Choices(3 if env_id == 4 else 2), 3, 2)


def test_an_info_that_is_none_names_its_environment() -> None:
    class Careless(envs.LifeStepEnv):
        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], None)

    env = BatchedEnvironment(lambda *_: Careless(), 1, 3)
    env.reset()
    with pytest.raises(EnvironmentFailure, match=r"Environment 3 raised in step\(\)"):
        env.step(np.int64([0]))
