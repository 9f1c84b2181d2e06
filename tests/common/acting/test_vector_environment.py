"""Vector environments follow the episode protocol, whatever they do at the end of an episode."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from gymnasium.error import DependencyNotInstalled
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from seed_rl.common.acting.batched_env import BatchedEnvironment, EnvironmentFailure
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.acting.vector_environment import SingleEnvironment, VectorEnvironment
from seed_rl.common.errors import UserError
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.nest import flatten
from seed_rl.common.returns.transitions import transitions
from seed_rl.common.types import EnvOutput

MODES = tuple(AutoresetMode)


class Walk(gymnasium.Env[Any, Any]):
    """Deterministic: everything follows from the actions since the reset, and from the id.

    The action decides when an episode ends and how, so that all orders of endings occur.
    """

    TERMINATE, TRUNCATE, BOTH, LIFE = 3, 4, 5, 6

    def __init__(self, env_id: int, nested: bool = False):
        self._id = env_id
        vector = spaces.Box(-1e9, 1e9, (3,), np.float64)
        parts = {"at": spaces.Discrete(10), "more": spaces.Tuple([vector, spaces.MultiBinary(2)])}
        self.observation_space = spaces.Dict(parts) if nested else vector
        self.action_space = spaces.Discrete(7)
        self._nested = nested
        self.taken: list[tuple[int, float, bool]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._steps, self._sum = 0, 100.0 * self._id
        return self._observation(), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        self._sum = self._sum * 3 % 1000 + int(action)
        terminated = action in (self.TERMINATE, self.BOTH)
        truncated = action in (self.TRUNCATE, self.BOTH)
        self.taken.append((self._steps - 1, float(action), terminated))
        info: dict[str, Any] = {}
        if action != 0:
            info["score_reward"] = 7.0 * action
        if action == self.LIFE:
            info["learning_episode_over"] = True
        return self._observation(), float(action), terminated, truncated, info

    def _observation(self) -> Any:
        vector = np.array([self._id, self._steps, self._sum])
        if not self._nested:
            return vector
        return {
            "at": int(self._sum) % 10,
            "more": (vector, np.array([self._steps % 2, 1], np.int8)),
        }


def vector_of(
    size: int, mode: AutoresetMode, nested: bool = False, **options: Any
) -> VectorEnvironment:
    makers = [lambda i=i: Walk(i, nested) for i in range(size)]
    return VectorEnvironment(SyncVectorEnv(makers, autoreset_mode=mode), range(size), **options)


def report(step: Any) -> list[np.ndarray]:
    return [np.copy(leaf) for leaf in flatten(tuple(step))]


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(MODES),
    nested=st.booleans(),
    actions=st.integers(1, 4).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 6), min_size=k, max_size=k), max_size=20)
    ),
)
def test_equals_single_environments(mode: Any, nested: bool, actions: list[list[int]]) -> None:
    """Every report of every step equals that of `BatchedEnvironment`, for all modes."""
    size = len(actions[0]) if actions else 1
    single = BatchedEnvironment(lambda i, _: wrap_for_agent(Walk(i, nested)), size, 0)
    vector = vector_of(size, mode, nested)
    assert vector.observation_space == single.observation_space
    first, expected = flatten(vector.reset(seed=1)), flatten(single.reset(seed=1))
    for a, b in zip(first, expected, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    for action in actions:
        batch = np.array(action)
        for a, b in zip(report(vector.step(batch)), report(single.step(batch)), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


class WithoutRows(VectorEnv[Any, Any, Any]):
    """A `SyncVectorEnv` that can only be reset as a whole, as many native environments."""

    def __init__(self, size: int, mode: AutoresetMode):
        self._env = SyncVectorEnv([lambda i=i: Walk(i) for i in range(size)], autoreset_mode=mode)
        self.num_envs = size
        self.envs: Any = self._env.envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = self._env.single_observation_space
        self.single_action_space = self._env.single_action_space

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        assert options is None, "cannot reset some"
        return self._env.reset(seed=seed)

    def step(self, actions: Any) -> Any:
        return self._env.step(actions)


def played(vector: VectorEnvironment, actions: list[int]) -> list[tuple[Any, ...]]:
    """Per step: reward, done, abandoned, episode step, and the environment's count of steps."""
    vector.reset()
    seen = []
    for action in actions:
        step = vector.step(np.array([action]))
        seen.append(
            (
                float(step.reward[0]),
                bool(step.done[0]),
                bool(step.abandoned[0]),
                int(step.episode_step[0]),
                int(step.observation[0, 1]),
            )
        )
    return seen


def test_next_step_without_partial_resets() -> None:
    """After its end, a terminated episode takes a step more, as a truncated one does."""
    vector = VectorEnvironment(WithoutRows(1, AutoresetMode.NEXT_STEP), [0])
    assert not vector.resets_rows
    assert played(vector, [1, 3, 2, 1, 4, 2, 1]) == [
        (1, False, False, 1, 1),
        (3, True, False, 2, 2),  # Terminated; its last observation.
        (0, True, True, 0, 0),
        (1, False, False, 1, 1),
        (4, False, False, 2, 2),  # Truncated.
        (0, True, True, 0, 0),
        (1, False, False, 1, 1),
    ]


def test_next_step_without_shared_memory() -> None:
    """Guards against a false transition of each new episode: CartPole pays 1 per step."""
    makers = [lambda: gymnasium.make("CartPole-v1")]
    with contextlib.closing(
        AsyncVectorEnv(
            makers, shared_memory=False, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP
        )
    ) as env:
        vector = VectorEnvironment(env, [0])
        vector.reset(seed=1)
        steps = (vector.step(np.array([0])) for _ in range(40))
        reports = {(step.reward.item(), step.abandoned.item()) for step in steps}
    assert reports == {(1, False), (0, True)}


def test_learners_see_what_the_environments_did_and_nothing_else() -> None:
    """Guards against training on the step that resets: of the transitions in the store, those that
    losses do not mask are the steps that were taken, and values end where episodes terminated.
    """
    actions = np.array([[1, 3, 2, 1, 4, 2, 5, 0, 3, 0], [3, 1, 3, 1, 1, 1, 2, 4, 1, 2]])
    env = WithoutRows(2, AutoresetMode.NEXT_STEP)
    vector = VectorEnvironment(env, [0, 1])
    specs = EnvOutput(
        *(tf.TensorSpec([], dtype) for dtype in (tf.float32, tf.bool)),
        tf.TensorSpec([3], tf.float32),
        *(tf.TensorSpec([], dtype) for dtype in (tf.bool, tf.int32)),
    )
    store = InferenceStore(
        num_envs=2,
        num_training_envs=2,
        unroll_length=actions.shape[1],
        num_overlapping_steps=0,
        queue_capacity=2,
        action_specs=tf.TensorSpec([], tf.int64),
        initial_state=(),
        step_specs=specs,
    )

    def record(reported: EnvOutput, raw_reward: Any) -> None:
        ids, run_ids = tf.constant([0, 1]), tf.constant([1, 1], tf.int64)
        store.begin(ids, run_ids, tf.nest.map_structure(tf.constant, reported), raw_reward)
        store.end(ids, run_ids, tf.zeros([2], tf.int64), (), reported)

    zeros, false = np.zeros(2, np.float32), np.zeros(2, bool)
    record(EnvOutput(zeros, false, vector.reset(), false, np.zeros(2, np.int32)), zeros)
    for action in actions.T:
        step = vector.step(action)
        reported = step.reward, step.done, step.observation, step.abandoned, step.episode_step
        record(EnvOutput(*reported), step.raw_reward)
    unrolls = store.dequeue(2)
    learned = transitions(unrolls.steps, discounting=0.9)
    for column, env_id in enumerate(unrolls.env_ids.numpy()):
        steps = zip(
            unrolls.steps.observation[:-1, column, 1].numpy(),
            learned.r_t[:, column].numpy(),
            learned.discount_t[:, column].numpy() == 0,
            learned.mask[:, column].numpy(),
            strict=True,
        )
        expected = env.envs[env_id].taken
        assert [tuple(rest) for *rest, mask in steps if mask] == expected
        assert any(over for *_, over in expected)
    episodes = store.episodes()
    ended = zip(episodes.env_ids, episodes.num_steps, episodes.returns, strict=True)
    assert sorted(map(tuple, ended)) == [
        *((0, 1, 3.0), (0, 1, 5.0), (0, 2, 4.0), (0, 2, 5.0)),
        *((1, 1, 3.0), (1, 1, 3.0), (1, 4, 8.0)),
    ]


def test_same_step_without_partial_resets() -> None:
    """The step after a truncation is not seen; everything else follows the protocol."""
    vector = VectorEnvironment(WithoutRows(1, AutoresetMode.SAME_STEP), [0])
    assert played(vector, [1, 3, 4, 2, 1]) == [
        (1, False, False, 1, 1),
        (3, True, False, 0, 0),
        (4, False, False, 1, 1),  # Truncated; its last observation, from the infos.
        (0, True, True, 0, 1),  # The environment has taken a step already.
        (1, False, False, 1, 2),
    ]


@pytest.mark.parametrize("mode", MODES)
def test_seeds_differ_within_an_actor_and_equal_those_of_single_environments(mode: Any) -> None:
    class Random(Walk):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.np_random.uniform(size=3), {}

    env = SyncVectorEnv([lambda i=i: Random(i) for i in range(3)], autoreset_mode=mode)
    single = BatchedEnvironment(lambda i, _: wrap_for_agent(Random(i)), 3, 0)
    observation = VectorEnvironment(env, range(3)).reset(seed=5)
    np.testing.assert_array_equal(observation, single.reset(seed=5))
    assert len(np.unique(observation)) == 9


def test_native_environment_of_gymnasium() -> None:
    """CartPole's own vector environment: one seed for all, and no partial resets."""
    env = gymnasium.make_vec("CartPole-v1", 4, vectorization_mode="vector_entry_point")
    vector = VectorEnvironment(env, range(4))
    first = np.copy(vector.reset(seed=1))
    np.testing.assert_array_equal(first, vector.reset(seed=1))
    lengths = []
    length = np.zeros(4, int)
    for _ in range(200):
        step = vector.step(np.ones(4, np.int64))
        length += 1
        begun = step.episode_step == 0
        lengths += length[begun].tolist()
        length[begun] = 0
        assert (np.abs(step.observation[begun]) <= 0.05).all()
    assert 9 <= np.mean(lengths) <= 12  # Pushed to one side, poles fall after nine steps or so.


def test_actions_are_scaled_and_checked() -> None:
    class Box(Walk):
        def __init__(self) -> None:
            super().__init__(0)
            self.action_space = spaces.Box(-2.0, 6.0, (1, 2), np.float32)  # type: ignore[assignment]

        def step(self, action: Any) -> Any:
            self.last = action
            return self._observation(), 0.0, False, False, {}

    env = SyncVectorEnv([Box, Box])
    vector = VectorEnvironment(env, [0, 1])
    vector.reset()
    vector.step(np.array([[-1, 1], [0, 9]], np.float32))
    np.testing.assert_array_equal(env.envs[0].last, [[-2, 6]])
    np.testing.assert_array_equal(env.envs[1].last, [[2, 6]])
    with pytest.raises(UserError, match="not in this environment's action space"):
        vector.step(np.zeros((3, 2), np.float32))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {}}, "AutoresetMode.NEXT_STEP"),
        ({"metadata": {"autoreset_mode": AutoresetMode.DISABLED}}, "reset_mask"),
        ({"num_envs": 3}, "has 3 environments, expected 2"),
    ],
)
def test_vector_environments_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    env = WithoutRows(2, AutoresetMode.NEXT_STEP)
    for name, value in change.items():
        setattr(env, name, value)
    with pytest.raises(UserError, match=message):
        VectorEnvironment(env, range(2))


def test_a_single_environment_is_no_vector_environment() -> None:
    with pytest.raises(UserError, match="Walk is not a vector environment: it has no num_envs"):
        VectorEnvironment(Walk(0), [0])


def _stepped(observation: tuple[int, ...], paid: Any, truncated: bool = False) -> Any:
    """A step that returns these, for two environments."""
    return np.zeros((2, *observation)), paid, [False] * 2, [truncated] * 2, {}


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        (lambda _: 1 / 0, EnvironmentFailure, r"Environments 4 to 5 raised in step\(\)"),
        (mock.Mock(side_effect=DependencyNotInstalled("pip install x")), UserError, "install x"),
        (
            *(lambda _: _stepped((4,), [0.0, 0.0]), UserError),
            r"float32\[2, 4\], expected float32\[3\] for each of 2",
        ),
        (lambda _: _stepped((3,), [0.0, None]), UserError, "Environment 5: its reward is None"),
        (lambda _: _stepped((3,), [0.0, 0.0], truncated=True), UserError, "final_obs"),
    ],
)
def test_errors_of_the_environment(monkeypatch: Any, step: Any, error: Any, message: str) -> None:
    env = WithoutRows(2, AutoresetMode.SAME_STEP)
    vector = VectorEnvironment(env, [4, 5])
    vector.reset()
    monkeypatch.setattr(env, "step", step)
    with pytest.raises(error, match=message):
        vector.step(np.zeros(2, np.int64))


@pytest.mark.parametrize("mode", [*MODES, None])
def test_one_environment_as_a_single_one(mode: Any) -> None:
    """Episodes for playing: as Gymnasium has them, one after the other."""
    without_rows = VectorEnvironment(WithoutRows(1, AutoresetMode.NEXT_STEP), [0])
    env = SingleEnvironment(vector_of(1, mode) if mode else without_rows)
    for ending in (Walk.TERMINATE, Walk.TRUNCATE, Walk.TRUNCATE, Walk.TERMINATE):
        observation, _ = env.reset()
        assert observation[1] == 0
        for action in (1, 2, ending):
            observation, reward, terminated, truncated, info = env.step(action)
            assert (reward, info["score_reward"]) == (action, 7.0 * action)
        assert terminated == (ending == Walk.TERMINATE)
        assert truncated == (ending == Walk.TRUNCATE)
        if truncated:
            assert observation[1] == 3  # The last observation, to bootstrap from.


def test_an_info_per_environment_is_an_error_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards against an AttributeError, for which the actor would be restarted for ever."""
    env = WithoutRows(2, AutoresetMode.NEXT_STEP)
    monkeypatch.setattr(env, "reset", lambda **_: (np.zeros((2, 3)), [{}, {}]))
    with pytest.raises(UserError, match=r"0 to 1: reset\(\) returned list as info. Return one"):
        VectorEnvironment(env, range(2)).reset()
