"""MuJoCo environments as agents see them, and error messages."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from seed_rl.common.acting.batched_env import BatchedEnvironment
from seed_rl.common.errors import UserError
from seed_rl.mujoco.env import create_environment
from seed_rl.mujoco.environment import MujocoConfig, create
from tests.helpers import PROGRAMS, run_python


class Recorder(gymnasium.Env[Any, Any]):
    """Keeps its actions."""

    def __init__(self) -> None:
        self.action_space = spaces.Box(-2.0, 2.0, (2,), np.float64)
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.full(3, 0.1), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        self.actions.append(action)
        return np.full(3, 0.1), 0.1, False, False, {}


class NoReward(Recorder):
    """Forgets its reward."""

    def step(self, action: Any) -> Any:
        return np.full(3, 0.1), None, False, False, {}


RECORDER = f"{__name__}:Recorder"


def actions_of(env: gymnasium.Env[Any, Any]) -> list[Any]:
    return env.unwrapped.actions  # type: ignore[attr-defined, no-any-return]


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Pusher-v5", "InvertedPendulum-v5", "Ant-v4"])
def test_mujoco_environments_fit_agents(name: str) -> None:
    """Observations and rewards are float32, actions vectors within [-1, 1]."""
    env = create(0, MujocoConfig(env_name=name))
    env.action_space.seed(0)
    assert isinstance(env.action_space, spaces.Box)
    assert env.action_space.dtype == np.float32
    assert set(env.action_space.low) == {-1} and set(env.action_space.high) == {1}
    assert env.observation_space.dtype == np.float32
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        assert observation.dtype == np.float32 and env.observation_space.contains(observation)
        observation, reward, *_ = env.step(env.action_space.sample())
        assert isinstance(reward, np.float32) and np.isfinite(reward)


def test_logarithmic_discretization() -> None:
    """By default, five magnitudes in equal ratios, from a thirtieth of the bound to the bound."""
    magnitudes = [2 * 30 ** (-(4 - i) / 4) for i in range(5)]
    default = create_environment(RECORDER, "log")
    options: Any = {"discretization": "log", "n_actions_per_dim": 3, "action_ratio": 4.0}
    chosen = create(0, MujocoConfig(env_name=RECORDER, **options))
    # With one magnitude per side, it is the smallest of the ratio.
    for env, positive in ((default, magnitudes), (chosen, [0.5])):
        size = 2 * len(positive) + 1
        assert env.action_space == spaces.MultiDiscrete([size, size])
        env.reset()
        for choice in range(size):
            env.step(np.array([choice, size // 2]))
        values, middle = np.array(actions_of(env)).T
        np.testing.assert_allclose(values, [-m for m in positive[::-1]] + [0.0] + positive)
        assert not middle.any()


def test_half_cheetah_is_abandoned_after_1000_steps() -> None:
    """Its time limit truncates: learners bootstrap from step 1000 rather than take 0."""
    envs = BatchedEnvironment(create, 1, 0, MujocoConfig())
    envs.reset(seed=0)
    action = np.zeros((1, 6), np.float32)
    for _ in range(1000):
        step = envs.step(action)
        assert not step.done[0] and not step.abandoned[0]
    assert step.episode_step[0] == 1000
    last = step.observation.copy()
    step = envs.step(action)
    assert step.done[0] and step.abandoned[0] and step.reward[0] == 0
    assert step.episode_step[0] == 0 and not np.array_equal(step.observation, last)
    assert not envs.step(action).done[0]


@pytest.mark.parametrize("gym_kwargs", [{"healthy_reward": 5.0}, {"healthy_reward": 2.0}])
def test_arguments_reach_the_environment(gym_kwargs: dict[str, float]) -> None:
    """In Python as a dictionary, on the command line as JSON."""
    options = MujocoConfig(env_name="Hopper-v5", env_kwargs=json.dumps(gym_kwargs))
    for env in (create_environment("Hopper-v5", gym_kwargs=gym_kwargs), create(0, options)):
        env.reset(seed=0)
        info = env.step(np.zeros(3, np.float32))[4]
        assert info["reward_survive"] == gym_kwargs["healthy_reward"]


CART = """
<mujoco>
  <worldbody>
    <body name="cart">
      <joint name="slider" type="slide" axis="1 0 0"/>
      <geom size="0.1" mass="{mass}"/>
      <body name="pole"><joint name="hinge" axis="0 1 0"/><geom size="0.05" pos="0 0 0.6"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="slider" ctrlrange="-5 5" ctrllimited="true"/></actuator>
</mujoco>
"""


def test_own_model(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is simulated instead of the environment's own; its name may be relative."""
    (tmp_path / "cart.xml").write_text(CART.format(mass=7))
    monkeypatch.chdir(tmp_path)
    env = create(0, MujocoConfig(env_name="InvertedPendulum-v5", xml_file="cart.xml"))
    assert env.unwrapped.model.body("cart").mass[0] == 7  # type: ignore[attr-defined]
    env.reset(seed=0)
    env.step(np.ones(1, np.float32))
    assert env.unwrapped.data.ctrl[0] == 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "leaf"),
    [("Toy-v0", (3,)), ("toy_env", (3,)), ("ToyMemory-v0", (4,)), ("BitFlipping-v0", (10,))],
)
def test_toy_environments_by_name(name: str, leaf: tuple[int, ...]) -> None:
    """A Gymnasium id is all that is needed; spaces stay as they are."""
    env = create(0, MujocoConfig(env_name=name))
    space = env.observation_space
    sub = space["desired_goal"] if isinstance(space, spaces.Dict) else space
    assert sub.shape == leaf and isinstance(env.action_space, spaces.Discrete)
    observation, _ = env.reset(seed=0)
    assert space.contains(observation)


def test_old_programs_find_the_reward_function() -> None:
    """Hindsight replay takes it from the environment."""
    env = create_environment("BitFlipping-v0", gym_kwargs={"n_bits": 4})
    bits = np.zeros((5, 4), np.float32)
    compute_reward = env.get_wrapper_attr("compute_reward")
    np.testing.assert_array_equal(compute_reward(bits, bits), np.zeros(5))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_name": "HalfCheeta-v5"}, "Did you mean HalfCheetah-v5?"),
        ({"env_name": "halfcheetah-v5"}, "Did you mean HalfCheetah-v5?"),
        ({"env_name": "BitFlip-v0"}, "Did you mean BitFlipping-v0?"),
        ({"env_name": "HalfCheetah-v9"}, "Did you mean HalfCheetah-v5?"),
        ({"env_name": "HalfCheetah-v3"}, "needs mujoco-py, .* Use HalfCheetah-v5"),
        ({"env_name": "Reacher-v2"}, "needs mujoco-py, .* Use Reacher-v5"),
        ({"xml_file": "no/such.xml"}, "--xml_file=no/such.xml: there is no file /"),
        ({"xml_file": __file__}, "--xml_file=.*XML"),
        ({"xml_file": __file__, "env_name": "HalfCheetah-v4"}, "HalfCheetah-v4 does not take"),
        ({"xml_file": __file__, "env_name": "Toy-v0"}, "Toy-v0 does not take a model"),
        ({"xml_file": __file__, "env_name": "Nothing-v0"}, "Nothing"),
        (
            {"discretization": "lin", "env_name": "Toy-v0"},
            "=lin with --env_name=Toy-v0: .*Discrete",
        ),
        ({"discretization": "lin", "n_actions_per_dim": 4}, "must be odd"),
        ({"discretization": "log", "action_ratio": 1.0}, "requires action_ratio > 1"),
    ],
)
def test_mistakes_are_told_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        create(0, MujocoConfig(**options))


def test_a_missing_reward_is_no_nan() -> None:
    """Guards against blaming the agent for the environment's fault."""
    env = create(0, MujocoConfig(env_name=f"{__name__}:NoReward"))
    env.reset()
    with pytest.raises(UserError, match="None"):
        env.step(np.zeros(2, np.float32))


def test_mujoco_is_not_installed() -> None:
    """The message has the command that installs it; environments without MuJoCo work."""
    program = """
import sys
sys.modules["mujoco"] = None
from seed_rl.mujoco.environment import MujocoConfig, create
create(0, MujocoConfig(env_name="Toy-v0"))
create(0, MujocoConfig())
"""
    result = run_python("-c", program)
    assert f'run `{sys.executable} -m pip install "gymnasium[mujoco]"`' in result.stderr
    assert "UserError: --env_name=HalfCheetah-v5: MuJoCo is not installed" in result.stderr


def test_warnings_are_logged_once_and_write_no_file(tmp_path: Any, repository: Any) -> None:
    """MuJoCo's own handler would append to MUJOCO_LOG.TXT for every environment."""
    (tmp_path / "cart.xml").write_text(CART.format(mass=1))
    variables = {"PYTHONPATH": str(repository)}
    result = run_python(PROGRAMS / "mujoco_warnings.py", code=0, cwd=tmp_path, variables=variables)
    assert result.stderr.count("MuJoCo: Nan, Inf or huge value") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cart.xml"]


class Unrenderable(Recorder):
    """Fails as MuJoCo does without OpenGL."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None):
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        raise RuntimeError("an OpenGL platform library has not been loaded")


def test_rendering_without_opengl_says_what_to_do() -> None:
    env = create(0, MujocoConfig(env_name=f"{__name__}:Unrenderable", render_mode="rgb_array"))
    env.reset()
    with pytest.raises(UserError, match="OpenGL platform.* set MUJOCO_GL=egl .*osmesa"):
        env.render()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [({}, "egl"), ({"DISPLAY": ":0"}, None), ({"MUJOCO_GL": "osmesa"}, "osmesa")],
)
def test_renderer_without_a_display(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str | None
) -> None:
    """EGL, unless there is a display or the user has chosen."""
    config = MujocoConfig(env_name="Toy-v0", render_mode="rgb_array")
    create(0, config)  # Imports MuJoCo, which fails if OSMesa is chosen and not installed.
    for name in ("DISPLAY", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")  # So that monkeypatch undoes what `create` sets.
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    create(0, config)
    assert os.environ.get("MUJOCO_GL") == expected


@pytest.mark.parametrize(
    ("name", "arguments", "camera"),
    [
        ("HalfCheetah-v5", "{}", "track"),
        ("HalfCheetah-v5", '{"camera_id": -1}', None),
        ("Hopper-v5", "{}", None),  # Gymnasium's free camera follows it.
    ],
)
def test_the_camera_follows(name: str, arguments: str, camera: str | None) -> None:
    """Guards videos from bodies that run out of sight within a second."""
    env = create(0, MujocoConfig(env_name=name, env_kwargs=arguments, render_mode="rgb_array"))
    model = env.unwrapped.model  # type: ignore[attr-defined]
    chosen = env.unwrapped.mujoco_renderer.camera_id  # type: ignore[attr-defined]
    assert chosen == (model.camera(camera).id if camera else -1)
