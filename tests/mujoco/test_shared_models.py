"""When environments share a MuJoCo model, and that it changes nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import gymnasium
import numpy as np
import pytest

from seed_rl.mujoco import environment as mujoco_env
from seed_rl.mujoco import shared_models
from seed_rl.mujoco.environment import MujocoConfig


def model(config: MujocoConfig) -> Any:
    return shared_models.create(0, config).unwrapped.model  # type: ignore[attr-defined]


def test_trajectories_are_the_same() -> None:
    """Guards that environments with one model do not influence each other."""
    config = MujocoConfig(env_name="Hopper-v5")
    sharing = [shared_models.create(i, config) for i in range(2)]
    alone = mujoco_env.create(0, config)
    assert sharing[0].unwrapped.model is sharing[1].unwrapped.model  # type: ignore[attr-defined]
    sharing[0].reset(seed=1)
    alone.reset(seed=1)
    sharing[1].reset(seed=2)
    actions = np.random.default_rng(0).uniform(-1, 1, (60, 3)).astype(np.float32)
    for action in actions:
        expected, actual = alone.step(action), sharing[0].step(action)
        np.testing.assert_array_equal(actual[0], expected[0])
        assert actual[1:4] == expected[1:4]
        sharing[1].step(-action)
        if expected[2]:
            np.testing.assert_array_equal(sharing[0].reset()[0], alone.reset()[0])
            sharing[1].reset()


def test_only_equal_models_are_shared() -> None:
    config = MujocoConfig(env_name="Swimmer-v5")
    assert model(config) is model(dataclasses.replace(config, env_kwargs='{"frame_skip": 2}'))
    assert model(config) is not model(MujocoConfig(env_name="Reacher-v5"))


class Randomized(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes the model, as domain randomization does."""

    def __init__(self, env: Any):
        super().__init__(env)
        self.unwrapped.model.opt.gravity[2] = -1.0  # type: ignore[attr-defined]


def make_randomized() -> gymnasium.Env[Any, Any]:
    return Randomized(gymnasium.make("Swimmer-v5"))


@pytest.mark.parametrize(
    "config",
    [
        MujocoConfig(env_name="Swimmer-v5", env_wrappers=(f"{__name__}:Randomized",)),
        MujocoConfig(env_name=f"{__name__}:make_randomized"),
    ],
)
def test_what_may_change_its_model_has_its_own(config: MujocoConfig) -> None:
    stock = model(MujocoConfig(env_name="Swimmer-v5"))
    randomized = [model(config) for _ in range(2)]
    assert randomized[0] is not randomized[1]
    assert [m.opt.gravity[2] for m in randomized] == [-1.0, -1.0]
    assert stock.opt.gravity[2] == pytest.approx(-9.81)


def test_toy_environments_have_no_model() -> None:
    shared_models.create(0, MujocoConfig(env_name="Toy-v0")).reset(seed=1)
