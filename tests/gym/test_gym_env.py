"""Any Gymnasium environment by name."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.acting.spaces import leaf_spaces
from seed_rl.common.acting.vector_environment import VectorEnvironment
from seed_rl.common.errors import UserError
from seed_rl.gym.env import GymConfig, create_batch, create_environment
from seed_rl.mujoco import environment as mujoco_env
from seed_rl.testing import envs


def make(name: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    arguments = kwargs.pop("arguments", {})
    return create_environment(
        0, GymConfig(env_name=name, env_kwargs=json.dumps(arguments), **kwargs)
    )


def roll(env: gymnasium.Env[Any, Any], steps: int = 60) -> None:
    """Random steps, every observation checked against the space that agents see."""
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        assert np.isfinite(reward)
        if terminated or truncated:
            observation, _ = env.reset()


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "Pendulum-v1",  # Box of actions within [-2, 2].
        "Acrobot-v1",
        "FrozenLake-v1",  # Discrete observations.
        "Blackjack-v1",  # Tuple of Discrete observations.
        "seed_rl.testing.envs:Dict-v0",
    ],
)
def test_registered_environments_fit_agents(name: str) -> None:
    """Observations are uint8 or float32 arrays, boxes of actions are vectors within [-1, 1]."""
    env = make(name)
    roll(env)
    for leaf in leaf_spaces(env.observation_space):
        assert isinstance(leaf, spaces.Box) and leaf.dtype in (np.uint8, np.float32)
    for leaf in leaf_spaces(env.action_space):
        if isinstance(leaf, spaces.Box):
            assert leaf.low.min() == -1 and leaf.high.max() == 1 and len(leaf.shape) == 1


def test_actions_are_scaled_to_the_environments_bounds() -> None:
    env = make("Pendulum-v1")
    env.reset(seed=0)
    for action, torque in ((1.0, 2.0), (-0.5, -1.0), (7.0, 2.0)):
        env.step(np.array([action], np.float32))
        assert env.unwrapped.last_u == pytest.approx(torque)  # type: ignore[attr-defined]


def test_arguments_reach_the_environment() -> None:
    env = make("seed_rl.testing.envs:LifeStep-v0", arguments={"episode_length": 2})
    env.reset()
    assert not env.step(0)[2] and env.step(0)[2]


def test_callable_with_the_old_interface() -> None:
    """An environment of gym's old kind, named by its class, is adapted."""
    env = make("seed_rl.testing.envs:OldGymEnv", arguments={"episode_length": 2, "truncate": True})
    observation, info = env.reset(seed=3)
    assert observation.shape == (4,) and info == {}
    env.step(1)
    *_, terminated, truncated, _ = env.step(1)
    assert truncated and not terminated


def test_an_action_lasts_several_frames() -> None:
    """Guards --num_action_repeats, by which the learner counts frames; here and with MuJoCo."""
    env = make("CartPole-v1", num_action_repeats=3)
    env.reset(seed=0)
    assert env.step(0)[1] == 3.0
    env = mujoco_env.create(0, mujoco_env.MujocoConfig(num_action_repeats=3))
    env.reset(seed=0)
    env.step(np.zeros(6, np.float32))
    assert env.unwrapped.data.time == pytest.approx(3 * env.unwrapped.dt)  # type: ignore[attr-defined]


def test_wrappers_are_applied_in_order() -> None:
    env = make(
        "seed_rl.testing.envs:LifeStep-v0",
        env_wrappers=(
            "gymnasium.wrappers:FlattenObservation",
            "gymnasium.wrappers:RecordEpisodeStatistics",
        ),
    )
    assert isinstance(env, gymnasium.wrappers.RecordEpisodeStatistics)
    assert isinstance(env.env, gymnasium.wrappers.FlattenObservation)


def test_raw_observations() -> None:
    assert isinstance(
        make("FrozenLake-v1", raw_observations=True).observation_space, spaces.Discrete
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_name": "CartPool-v1"}, "CartPool"),
        ({"env_name": "CartPole-v99"}, "v99"),
        ({"env_name": "no_such_module:Thing-v0"}, "cannot import no_such_module"),
        ({"env_name": "no_such_module:Thing-v0"}, "add that folder to PYTHONPATH"),
        ({"env_name": "CartPole-v1", "env_kwargs": "{"}, "not JSON"),
        ({"env_name": "CartPole-v1", "env_kwargs": "[1]"}, "JSON object"),
        ({"env_name": "CartPole-v1", "env_kwargs": '{"colour": 1}'}, "colour"),
        ({"env_name": "CartPole-v1", "env_wrappers": ("json:nope",)}, "json:nope"),
        ({"env_name": "gymnasium:make_vec", "num_action_repeats": 4}, "vector environment"),
        ({"env_name": "CartPole-v1", "env_wrappers": ("CartPole",)}, "module:callable"),
        (
            {"env_name": "seed_rl.testing.envs:OldGymEnv", "render_mode": "human"},
            "no window: it has no parameter render_mode",
        ),
    ],
)
def test_mistakes_are_told_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_environment(0, GymConfig(**options))


def test_observations_without_a_fixed_shape() -> None:
    """Reported when the environment is created, not later in the learner."""

    class Text(envs.LifeStepEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Text(10)  # type: ignore[assignment]

    gymnasium.register("TextForTest-v0", entry_point=Text)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="fixed shape"):
        make("TextForTest-v0")


MODULE = """
from types import SimpleNamespace

import gymnasium
from gymnasium.vector import SyncVectorEnv


def make(size=4):
    return gymnasium.make("CartPole-v1")


class Levels:
    @classmethod
    def easy(cls):
        return make()


def make_vector(num_envs):
    return SyncVectorEnv([make] * num_envs)


def make_duck(num_envs):
    made = make_vector(num_envs)
    names = "reset step num_envs metadata single_observation_space single_action_space".split()
    return SimpleNamespace(**{name: getattr(made, name) for name in names})


def not_a_vector(num_envs):
    return make()
"""


@pytest.fixture
def module(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """A user's module, and a package that offers one of its functions as an entry point."""
    (tmp_path / "users_env.py").write_text(MODULE)
    installed = tmp_path / "users_package-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Name: users-package\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[seed_rl.environments]\ncart = users_env:make\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "users_env", raising=False)
    return "users_env"


def test_entry_points_of_installed_packages(module: str) -> None:
    assert make("cart").spec.id == "CartPole-v1"  # type: ignore[union-attr]


def test_a_class_method_may_make_environments(module: str) -> None:
    assert make(f"{module}:Levels.easy").spec.id == "CartPole-v1"  # type: ignore[union-attr]


def test_a_mistyped_function_is_told(module: str) -> None:
    with pytest.raises(UserError, match=r"no class or function mak\. Did you mean users_env:make"):
        make("users_env:mak")


@pytest.mark.parametrize("name", ["make_vector", "make_duck"])
def test_callables_with_num_envs_make_vector_environments(module: str, name: str) -> None:
    """The actor's environments at once; for the learner, one of them.

    Also guards those with Gymnasium's interface but without its base class.
    """
    config = GymConfig(env_name=f"{module}:{name}")
    vector = create_batch(np.arange(4, 7), config)
    assert vector is not None and vector.reset(seed=1).shape == (3, 4)
    assert vector.env_ids.tolist() == [4, 5, 6]
    single = create_environment(0, config)
    assert single.observation_space == vector.observation_space
    assert single.action_space == vector.action_space
    roll(single)


def test_gymnasiums_own_vector_environments() -> None:
    """Guards the documented way to the native ones among Gymnasium's registered environments."""
    arguments = {"id": "CartPole-v1", "vectorization_mode": "vector_entry_point"}
    config = GymConfig(env_name="gymnasium:make_vec", env_kwargs=json.dumps(arguments))
    vector = create_batch(np.arange(3), config)
    assert vector is not None and type(vector.env).__name__ == "CartPoleVectorEnv"
    assert vector.reset().shape == (3, 4)


@pytest.mark.parametrize("name", ["CartPole-v1", "users_env:make", "cart"])
def test_single_environments_are_stepped_one_by_one(module: str, name: str) -> None:
    assert create_batch(np.arange(3), GymConfig(env_name=name)) is None


def test_num_envs_of_another_meaning(module: str) -> None:
    config = GymConfig(env_name="users_env:not_a_vector")
    with pytest.raises(UserError, match="parameter num_envs must return one"):
        create_environment(0, config)
    given = dataclasses.replace(config, env_kwargs='{"num_envs": 3}')
    assert create_environment(0, given).spec.id == "CartPole-v1"  # type: ignore[union-attr]


def test_images_with_channels_first() -> None:
    """As PyTorch has them: networks get [height, width, channels], single and batched alike."""

    class Camera(envs.LifeStepEnv):
        observation_space: Any

        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (3, 40, 50), np.uint8)

        def _observation(self, action: int) -> np.ndarray:
            return np.arange(3 * 40 * 50).reshape(3, 40, 50).astype(np.uint8)

    env = wrap_for_agent(Camera())
    observation, _ = env.reset()
    assert observation.shape == env.observation_space.shape == (40, 50, 3)
    np.testing.assert_array_equal(observation[..., 2], Camera()._observation(0)[2])
    batch = VectorEnvironment(gymnasium.vector.SyncVectorEnv([Camera]), [0]).reset()
    np.testing.assert_array_equal(batch[0], observation)
