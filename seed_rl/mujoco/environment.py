"""MuJoCo and the toy environments, and whatever else Gymnasium makes (no TensorFlow here)."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from absl import logging

from seed_rl.common.acting import rewards
from seed_rl.common.acting.env_adapters import parameters
from seed_rl.common.acting.env_wrappers import (
    AgentObservations,
    DiscretizeEnvWrapper,
    wrap_for_agent,
)
from seed_rl.common.config.options import option, refuse_unused
from seed_rl.common.errors import UserError
from seed_rl.gym import env as gym_env
from seed_rl.mujoco import toy_env  # noqa: F401 - registers the toy environments.

NONE, LINEAR, LOGARITHMIC = "none", "lin", "log"

GYMNASIUM_ENVIRONMENTS = "gymnasium.envs.mujoco"
"""The module of Gymnasium's own environments."""


@dataclasses.dataclass(frozen=True)
class MujocoConfig(gym_env.GymConfig):
    """MuJoCo: the environment."""

    env_name: str = option(
        "HalfCheetah-v5",
        "Registered id, such as Hopper-v5 or the toy environments Toy-v0, ToyMemory-v0 and "
        "BitFlipping-v0; module:id to import a module first; or module:callable.",
        shared=True,
    )
    env_kwargs: str = option(
        "{}",
        "Arguments of the environment, as a JSON object.",
        aliases=("gym_kwargs",),
        shared=True,
    )
    xml_file: str | None = option(
        None, "MuJoCo model to simulate instead of the environment's own, as an XML file."
    )
    discretization: str = option(
        NONE,
        "Whether each dimension of continuous actions becomes a choice of n_actions_per_dim "
        "values: spaced evenly (lin), or more finely around 0 (log).",
        choices=(NONE, LINEAR, LOGARITHMIC),
    )
    n_actions_per_dim: int = option(
        11, "With discretization: values per dimension; an odd number.", minimum=3
    )
    action_ratio: float = option(
        30.0, "With discretization=log: largest action divided by the smallest above 0.", minimum=1
    )


class SinglePrecisionWrapper(AgentObservations):
    """Converts observations and rewards to float32; see `AgentObservations` for other types."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, np.float32(rewards.number(reward)), terminated, truncated, info


def create(task: int, config: MujocoConfig | None = None) -> gymnasium.Env[Any, Any]:
    """One environment.

    Args:
      task: environment id; unused.
      config: options; None: the defaults.

    Returns:
      An environment with observations and rewards <float32> and actions <float32>[n] in [-1, 1],
      which are scaled to the environment's bounds; or with n choices, if they are discretized.

    Raises:
      UserError: the environment is unknown, not installed or rejects an option.
    """
    del task
    config = config or MujocoConfig()
    return make(config, gym_env.keyword_arguments(config))


def make(config: MujocoConfig, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """As `create`, with other arguments of the environment than those of the options."""
    _refuse_mujoco_py(config.env_name)
    _take_warnings()
    if config.render_mode == "rgb_array" and not os.environ.get("DISPLAY"):
        os.environ.setdefault("MUJOCO_GL", "egl")  # MuJoCo would choose GLFW, and fail.
    env = _make(config, arguments)
    if config.render_mode:
        if not {"camera_id", "camera_name"} & set(arguments):
            _follow(env)
        env = _ExplainedRendering(env)
    if config.discretization != NONE:
        env = _discretized(env, config)
    env = wrap_for_agent(env, observations=False)
    return env if config.raw_observations else SinglePrecisionWrapper(env)


def _make(config: MujocoConfig, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    if config.xml_file is None:
        return gym_env.make(config, arguments)
    path = Path(config.xml_file).expanduser().absolute()
    if not path.is_file():
        raise UserError(f"--xml_file={config.xml_file}: there is no file {path}.")
    if "xml_file" not in parameters(gym_env.constructor(config)):
        raise UserError(
            f"--xml_file: {config.env_name} does not take a model. Gymnasium's MuJoCo environments "
            "do from version 5 on (HalfCheetah-v5, for instance), and so does any class with a "
            "parameter xml_file."
        )
    try:
        return gym_env.make(config, {**arguments, "xml_file": str(path)})
    except ValueError as error:  # MuJoCo's, for a model that it cannot read.
        raise UserError(f"--xml_file={config.xml_file}: {str(error).strip()}") from error


def _discretized(env: gymnasium.Env[Any, Any], config: MujocoConfig) -> gymnasium.Env[Any, Any]:
    try:
        return DiscretizeEnvWrapper(
            env, config.n_actions_per_dim, config.discretization, config.action_ratio
        )
    except UserError as error:
        raise UserError(
            f"--discretization={config.discretization} with --env_name={config.env_name}: {error}"
        ) from error


def check(config: MujocoConfig) -> None:
    """Refuses what can be told from the options: a misspelt id, what needs mujoco-py, and so on."""
    if config.discretization == NONE:
        refuse_unused(("n_actions_per_dim",), f"--discretization={NONE}")
    if config.discretization != LOGARITHMIC:
        refuse_unused(("action_ratio",), f"--discretization={config.discretization}")
    _refuse_mujoco_py(config.env_name)
    gym_env.check_name(config)


def _refuse_mujoco_py(name: str) -> None:
    spec = gymnasium.registry.get(name)
    if spec is None or spec.version not in (2, 3):
        return
    successor = gymnasium.registry.get(f"{spec.name}-v5")
    if successor and str(successor.entry_point).startswith(GYMNASIUM_ENVIRONMENTS):
        raise UserError(
            f"--env_name={name} needs mujoco-py, which is no longer maintained. Use {successor.id}."
        )


@functools.cache
def _take_warnings() -> None:
    """Logs MuJoCo's warnings, each once per process.

    By itself, MuJoCo appends each warning of each environment to MUJOCO_LOG.TXT in the working
    directory.
    """
    try:
        import mujoco
    except ImportError:  # Not needed by all environments; Gymnasium says so if it is.
        return

    @functools.cache
    def log(message: str) -> None:
        logging.warning("MuJoCo: %s", message)

    if mujoco.get_mju_user_warning() is None:  # Not the user's own.
        mujoco.set_mju_user_warning(log)


def _follow(env: gymnasium.Env[Any, Any]) -> None:
    """Shows what the model's camera "track" sees: Gymnasium 1.4 ignores it unless it is named."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or "trackbodyid" in (renderer.default_cam_config or {}):
        return
    import mujoco

    renderer.camera_id = mujoco.mj_name2id(renderer.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")


class _ExplainedRendering(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Says what to do if rendering fails."""

    def render(self) -> Any:
        try:
            return super().render()
        except Exception as error:  # Of OpenGL, EGL, GLFW, ...
            chosen = os.environ.get("MUJOCO_GL", "")
            raise UserError(
                f"Rendering failed ({type(error).__name__}: {error}) with MUJOCO_GL={chosen!r}. "
                "Without a display, set MUJOCO_GL=egl (needs a GPU driver or Mesa: libegl1) or "
                "MUJOCO_GL=osmesa (in software: libosmesa6)."
            ) from error
