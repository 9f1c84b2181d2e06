"""Wrappers and adapters of environments."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting import env_wrappers, goals
from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.acting.env_adapters import (
    OldGymAdapter,
    as_gymnasium,
    as_gymnasium_space,
    parameters,
    takes,
)
from seed_rl.common.acting.video import Film
from seed_rl.common.errors import UserError
from seed_rl.testing import envs


class Recorder(gymnasium.Env[Any, Any]):
    """Keeps the actions it gets, which must be in its action space."""

    def __init__(self, action_space: Any, observation_space: Any = None):
        self.action_space = action_space
        default = spaces.Box(0.0, 1.0, (1,))
        self.observation_space = default if observation_space is None else observation_space
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        return self.observation_space.sample(), 0.0, False, False, {}


BOX = spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 10.0]), dtype=np.float64)


def test_uniform_bounds() -> None:
    """-1 and 1 are the bounds, 0 the middle, everything outside is clipped."""
    recorder = Recorder(BOX)
    env = env_wrappers.UniformBoundActionSpaceWrapper(recorder)
    assert env.action_space == spaces.Box(-1.0, 1.0, (2,), np.float32)
    for action in ([-1, -1], [0, 0], [1, 1], [-9, 9], [0.5, -0.5]):
        env.step(np.array(action, np.float32))
    expected = [[-2, 0], [0, 5], [2, 10], [-2, 10], [1, 2.5]]
    np.testing.assert_allclose(recorder.actions, expected)


@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Box(-np.inf, 1.0, (1,))])
def test_uniform_bounds_need_bounds(space: Any) -> None:
    with pytest.raises(UserError, match="bounded Box"):
        env_wrappers.UniformBoundActionSpaceWrapper(Recorder(space))


def test_linear_discretization() -> None:
    recorder = Recorder(BOX)
    env = env_wrappers.DiscretizeEnvWrapper(recorder, 5)
    assert env.action_space == spaces.MultiDiscrete([5, 5])
    for action in ([0, 4], [2, 2], [3, 1]):
        env.step(np.array(action))
    np.testing.assert_allclose(recorder.actions, [[-2, 10], [0, 5], [1, 2.5]])


def test_logarithmic_discretization() -> None:
    """Magnitudes 1/ratio ... 1 in equal ratios, on both sides of 0."""
    recorder = Recorder(spaces.Box(-3.0, 3.0, (1,), np.float64))
    env = env_wrappers.DiscretizeEnvWrapper(recorder, 7, "log", action_ratio=100.0)
    for choice in range(7):
        env.step(np.array([choice]))
    values = np.array(recorder.actions)[:, 0]
    np.testing.assert_allclose(values / 3, [-1, -0.1, -0.01, 0, 0.01, 0.1, 1], atol=1e-12)


@pytest.mark.parametrize(
    ("space", "arguments", "message"),
    [
        (spaces.Discrete(2), (3,), "bounded Box"),
        (spaces.Box(-1.0, 1.0, (2, 2)), (3,), "rank 1"),
        (BOX, (4,), "odd"),
        (BOX, (3, "cubic"), "cubic"),
        (BOX, (3, "log", 30.0), "symmetric"),
        (spaces.Box(-1.0, 1.0, (1,)), (3, "log"), "action_ratio"),
    ],
)
def test_impossible_discretization(space: Any, arguments: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        env_wrappers.DiscretizeEnvWrapper(Recorder(space), *arguments)


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Discrete(3, start=5), 6, [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiDiscrete(np.array([[2], [2]])), np.array([[1], [0]]), [0, 1, 1, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.Box(-5, 5, (2,), np.int64), np.array([3, -4]), [3, -4]),
        (spaces.Box(-5.0, 5.0, (1,), np.float64), np.array([0.25]), [0.25]),
    ],
)
def test_observations_for_agents(space: Any, value: Any, expected: list[float]) -> None:
    env = env_wrappers.AgentObservations(Recorder(spaces.Discrete(2), space))
    observation = env.observation(value)
    assert observation.dtype == np.float32 and observation.tolist() == expected
    assert env.observation_space.contains(observation)
    batch = env.observation(np.stack([value, value]))  # As vector environments return them.
    assert batch.dtype == np.float32 and batch.tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (spaces.Discrete(5), -1),
        (spaces.Discrete(5, start=5), 10),
        (spaces.MultiDiscrete([2, 3]), [2, 0]),
        (spaces.MultiDiscrete([2, 3]), [0, -1]),
    ],
)
def test_a_choice_outside_its_space_is_not_another(space: Any, value: Any) -> None:
    convert = env_wrappers.observation_conversion(spaces.Dict(a=space)).convert
    for given in (np.array(value), np.array([space.sample(), value])):
        with pytest.raises(UserError, match=r"has the value .*-?\d.* not in its space .*Discrete"):
            convert({"a": given})


def test_actions_for_agents() -> None:
    """Nested boxes become vectors within [-1, 1]; the environment gets its own form back."""
    inner = spaces.Dict(
        {
            "grip": spaces.Box(0.0, 2.0, (2, 1)),
            "keys": spaces.MultiBinary((2, 2)),
            "modes": spaces.Tuple(
                [spaces.MultiDiscrete(np.full((1, 2), 3), np.int32), spaces.Discrete(4)]
            ),
            "free": spaces.Box(-np.inf, np.inf, (1,)),
        }
    )
    recorder = Recorder(inner)
    env = env_wrappers.wrap_for_agent(recorder)
    assert isinstance(env.action_space, spaces.Dict)
    assert env.action_space["grip"] == spaces.Box(-1.0, 1.0, (2,), np.float32)
    assert env.action_space["keys"] == spaces.MultiBinary(4)
    assert env.action_space["modes"][0] == spaces.MultiDiscrete([3, 3], np.int32)
    for _ in range(5):
        env.step(env.action_space.sample())  # The recorder checks each.
    env.step({**env.action_space.sample(), "grip": np.array([-1.0, 0.5], np.float32)})
    np.testing.assert_allclose(recorder.actions[-1]["grip"], [[0.0], [1.5]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_of_boxes_that_need_no_scaling(dtype: Any) -> None:
    """They reach the environment as they are, in its shape and type, and clipped."""
    recorder = Recorder(spaces.Box(-1.0, 1.0, (2, 1), dtype))
    env = env_wrappers.AgentActions(recorder)
    for action in ([0.3, -0.7], [1.0, -1.0], [7.0, -1.5]):
        env.step(np.array(action, np.float32))
    expected = np.array([[0.3, -0.7], [1, -1], [1, -1]], np.float32)[..., np.newaxis]
    np.testing.assert_allclose(recorder.actions, expected, rtol=1e-7)


@pytest.mark.parametrize(
    "env",
    [
        envs.LifeStepEnv(),
        Recorder(spaces.MultiBinary(3)),
        Recorder(spaces.MultiDiscrete([2, 3], np.int32)),
    ],
)
def test_environments_that_fit_are_not_wrapped(env: Any) -> None:
    """Every wrapper costs time at every step; one must not change the type of the choices."""
    assert env_wrappers.wrap_for_agent(env) is env


@pytest.mark.parametrize(
    ("env", "missing"),
    [(object(), "reset, step, observation_space"), (gymnasium.Env(), "observation_space, action")],
)
def test_what_is_missing_is_named(env: Any, missing: str) -> None:
    """Guards against an AttributeError that names a line of ours."""
    with pytest.raises(UserError, match=f"is not an environment: it has no {missing}"):
        as_gymnasium(env)


def test_a_vector_environment_is_not_taken_for_an_old_one() -> None:
    with pytest.raises(UserError, match="is a vector environment.*a parameter num_envs"):
        as_gymnasium(gymnasium.make_vec("CartPole-v1", 2))


@pytest.mark.parametrize("truncate", [False, True])
def test_old_gym_environment(truncate: bool) -> None:
    env = as_gymnasium(envs.OldGymEnv(episode_length=2, truncate=truncate))
    observation, info = env.reset(seed=4)
    assert isinstance(env, OldGymAdapter) and env.env.seeds == [4]
    assert observation.shape == (4,) and info == {}
    assert env.step(0)[2:4] == (False, False)
    assert env.step(0)[2:4] == (not truncate, truncate)
    env.close()  # It has no close() of its own.


def test_seeds_of_environments_with_an_attribute_seed() -> None:
    """Guards environments outside of Gymnasium that keep their seed as a number."""

    class Keeps:
        observation_space, action_space = spaces.Box(0.0, 1.0, (1,)), spaces.Discrete(2)
        seed: int | None = 42

        def reset(self, seed: int | None = None) -> Any:
            self.seed = seed
            return np.zeros(1, np.float32)

        def step(self, action: Any) -> Any:
            raise NotImplementedError

    env = as_gymnasium(Keeps())
    env.reset(seed=4)
    assert env.env.seed == 4


def test_native_functions_may_have_no_signature() -> None:
    """Guards environments of pybind11 from a ValueError; `max` is such a function."""
    assert not parameters(max) and not takes(max, "seed")
    assert takes(lambda seed: seed, "seed") and takes(lambda **named: named, "seed")


class OldReach(envs.OldGymEnv):
    """With goals and pictures."""

    metadata = {"render.modes": ["human", "rgb_array"], "video.frames_per_second": 50}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.zeros(len(achieved))

    def render(self, mode: str = "human") -> Any:
        return np.zeros((4, 6, 3), np.uint8) if mode == "rgb_array" else True


def test_hindsight_finds_the_rewards_of_old_environments() -> None:
    box = spaces.Box(0.0, 1.0, (2,))
    space = spaces.Dict(observation=box, achieved_goal=box, desired_goal=box)
    env = OldReach()
    assert goals.compute_reward(env, space) == env.compute_reward
    assert goals.compute_reward(copy.deepcopy(as_gymnasium(env)), space)
    assert goals.compute_reward(envs.OldGymEnv(), space) is None


def test_old_environments_are_filmed_at_their_speed() -> None:
    """Guards against their default, which is a window, and programs that ask for that."""
    frames: list[Any] = []
    video: Any = SimpleNamespace(add=lambda frame, fps: frames.append((frame.shape, fps)))
    Film(OldReach(), video).reset()
    assert frames == [((4, 6, 3), 50.0)]
    assert BatchedEnvironment(lambda env_id, config: OldReach(), 1, 0, None).render() is True
    with pytest.raises(UserError, match="cannot be recorded"):
        Film(envs.OldGymEnv(), video).reset()


def test_abandoned_of_old_environments() -> None:
    """The mark that environments for the original used."""

    class Abandons(envs.OldGymEnv):
        def step(self, action: int) -> Any:
            observation, reward, done, info = super().step(action)
            return observation, reward, done, {**info, "abandoned": done}

    env = as_gymnasium(Abandons(episode_length=1))
    env.reset()
    assert env.step(0)[2:4] == (False, True)


def test_new_interface_without_the_base_class_passes_through() -> None:
    class Duck:
        def __init__(self) -> None:
            env = envs.LifeStepEnv(1)
            self.observation_space, self.action_space = env.observation_space, env.action_space
            self.reset = lambda: env.reset()
            self.step = env.step

    env = as_gymnasium(Duck())
    observation, info = env.reset()
    assert observation[2] == 0 and info == {}
    assert env.step(0)[2:4] == (True, False)


@pytest.mark.parametrize("form", ["seed", "kwargs"])
def test_the_last_gym_takes_seeds_in_reset(form: str) -> None:
    """gym 0.26 has no `seed` method any more."""
    given: dict[str, Any] = {}
    env = envs.LifeStepEnv(1)

    def by_name(*, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        given.update(seed=seed, options=options)
        return env.reset()

    class Gym026:
        observation_space, action_space = env.observation_space, env.action_space
        reset = staticmethod(by_name if form == "seed" else lambda **kwargs: by_name(**kwargs))
        step = staticmethod(env.step)

    as_gymnasium(Gym026()).reset(seed=5, options={"level": 2})
    assert given == {"seed": 5, "options": {"level": 2}}


def test_an_old_observation_that_looks_like_a_pair() -> None:
    class Old:
        observation_space = spaces.Tuple([spaces.Discrete(3), spaces.Dict(a=spaces.Discrete(2))])
        action_space = spaces.Discrete(2)

        def __init__(self, new: bool):
            self._new = new

        def reset(self) -> Any:
            observation = (1, {"a": 0})
            return (observation, {"b": 1}) if self._new else observation

        def step(self, action: int) -> Any:
            raise NotImplementedError

    assert as_gymnasium(Old(new=False)).reset() == ((1, {"a": 0}), {})
    assert as_gymnasium(Old(new=True)).reset() == ((1, {"a": 0}), {"b": 1})


def test_spaces_of_old_gym() -> None:
    """Recognized by name: the old package need not be installed."""

    def old(name: str, **attributes: Any) -> Any:
        return type(name, (), attributes)()

    box = old("Box", low=np.zeros(2), high=np.ones(2), dtype=np.float32)
    discrete = old("Discrete", n=3)
    assert as_gymnasium_space(box) == spaces.Box(0.0, 1.0, (2,))
    assert as_gymnasium_space(discrete) == spaces.Discrete(3)
    assert as_gymnasium_space(old("MultiDiscrete", nvec=[2, 3])) == spaces.MultiDiscrete([2, 3])
    assert as_gymnasium_space(old("MultiBinary", n=3)) == spaces.MultiBinary(3)
    assert as_gymnasium_space(old("Tuple", spaces=[box, discrete])) == spaces.Tuple(
        [spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(3)]
    )
    assert as_gymnasium_space(old("Dict", spaces={"a": discrete})) == spaces.Dict(
        a=spaces.Discrete(3)
    )
    with pytest.raises(UserError, match="no equivalent of"):
        as_gymnasium_space(old("Graph"))


class Counting(gymnasium.Env[Any, Any]):
    """Frame n pays n; the score is ten times that where it is given, at even frames."""

    metadata = {"render_fps": 60}
    observation_space, action_space = spaces.Box(0.0, 100.0, (1,)), spaces.Discrete(2)

    def __init__(self, ends: dict[int, str] | None = None):
        self.frames, self._ends = 0, ends or {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.frames += 1
        end = self._ends.get(self.frames)
        info: dict[str, Any] = {} if self.frames % 2 else {"score_reward": 10.0 * self.frames}
        if end == "life":
            info["learning_episode_over"] = True
        observation = np.array([self.frames], np.float32)
        return observation, self.frames, end == "terminated", end == "truncated", info


@pytest.mark.parametrize("end", ["terminated", "truncated", "life"])
def test_actions_are_repeated_until_an_end(end: str) -> None:
    env = env_wrappers.RepeatActions(Counting({6: end}), 4)
    assert env.metadata["render_fps"] == 15  # So films are not four times too fast.
    observation, reward, *over, info = env.step(1)
    assert (observation[0], reward, over) == (4, 10.0, [False, False])
    assert info == {"score_reward": 1 + 20 + 3 + 40}
    observation, reward, *over, info = env.step(1)
    assert (observation[0], reward) == (6, 11.0) and info["score_reward"] == 5 + 60
    assert over == [end == "terminated", end == "truncated"]
    assert info.get("learning_episode_over", False) == (end == "life")


@pytest.mark.parametrize("place", ["info", "observation"])
def test_masked_actions_are_not_repeated(place: str) -> None:
    """Guards against sending an action that is no longer allowed."""
    env = env_wrappers.RepeatActions(envs.MaskedEnv(place), 2)
    with pytest.raises(UserError, match="--num_action_repeats=2: MaskedEnv has an action_mask"):
        env.reset()


def test_repeated_actions_leave_no_reward_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the message that names the mistake; a TypeError would restart the actor for ever."""
    monkeypatch.setattr(
        Counting, "step", lambda self, action: (np.zeros(1), None, False, False, {})
    )
    with pytest.raises(UserError, match="its reward is None, which is not a number"):
        env_wrappers.RepeatActions(Counting(), 2).step(1)
