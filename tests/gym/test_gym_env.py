"""Any Gymnasium environment by name."""

from __future__ import annotations

import json
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.errors import UserError
from seed_rl.gym.env import GymConfig, create_environment
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

    def leaves(space: Any) -> list[Any]:
        if isinstance(space, (spaces.Dict, spaces.Tuple)):
            subs = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
            return [leaf for sub in subs for leaf in leaves(sub)]
        return [space]

    for leaf in leaves(env.observation_space):
        assert isinstance(leaf, spaces.Box) and leaf.dtype in (np.uint8, np.float32)
    for leaf in leaves(env.action_space):
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
        ({"env_name": "CartPole-v1", "env_wrappers": ("CartPole",)}, "module:callable"),
    ],
)
def test_mistakes_are_told_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create_environment(0, GymConfig(**options))


def test_observations_without_a_fixed_shape() -> None:
    """Told when the environment is made, not in the middle of the learner."""

    class Text(envs.LifeStepEnv):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Text(10)  # type: ignore[assignment]

    gymnasium.register("TextForTest-v0", entry_point=Text)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="fixed shape"):
        make("TextForTest-v0")
