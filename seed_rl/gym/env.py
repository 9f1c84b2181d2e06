"""Any Gymnasium environment (no TensorFlow here)."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import importlib
import importlib.metadata
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from absl import logging
from gymnasium.envs import registration

from seed_rl.common.acting.env_adapters import as_gymnasium, parameters, takes
from seed_rl.common.acting.env_wrappers import RepeatActions, with_frames, wrap_for_agent
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.acting.vector_environment import SingleEnvironment, VectorEnvironment
from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_dependency
from seed_rl.gym import from_python

ENTRY_POINTS = "seed_rl.environments"
"""Group of entry points by which installed packages offer environments: NAME = module:callable."""


@dataclasses.dataclass(frozen=True)
class GymConfig(Checked):
    """Gymnasium: the environment."""

    env_name: str = option(
        "CartPole-v1",
        "Your environment: module:callable, a class or function that makes one (with a parameter "
        "num_envs: a vector environment); a registered id; module:id to import a module first; or "
        "the name of an entry point of an installed package.",
        aliases=("env",),
    )
    env_kwargs: str = option("{}", "Arguments of the environment, as a JSON object.")
    env_wrappers: tuple[str, ...] = option(
        (), "Wrappers as module:callable, innermost first; each is called with the environment."
    )
    num_action_repeats: int = option(
        1,
        "Frames per action, whose rewards are summed. Not with vector environments.",
        minimum=1,
        shared=True,
    )
    frame_size: tuple[int, ...] = option(
        (),
        "Height and width to which images are resized: 72,96, or 84 for both. Default: no change.",
        minimum=1,
    )
    grayscale: bool = option(False, "Whether to convert colour images to greyscale.")
    frame_stack: int = option(
        1,
        "Latest observations stacked for the agent, for vectors; zeros before an episode. "
        "For images: --stack_size, which stacks in the learner.",
        minimum=1,
    )
    raw_observations: bool = option(
        False, "Whether to pass observations unchanged, instead of as one-hot and float32."
    )
    render_mode: str | None = option(
        None,
        "human opens a window, rgb_array returns images. Default: no rendering.",
        neutral=True,
    )


def create_environment(task: int, config: GymConfig | None = None) -> gymnasium.Env[Any, Any]:
    """One environment.

    Args:
      task: environment id; unused.
      config: options; None: the defaults.

    Returns:
      An environment whose observations are nests of <uint8> and <float32> arrays and whose Box
      actions are vectors in [-1, 1].

    Raises:
      UserError: if the environment or a wrapper is not found or rejects its arguments.
    """
    del task
    config = config or GymConfig()
    vector = create_batch(np.zeros(1, np.int32), config)
    if vector is not None:
        return SingleEnvironment(vector)
    env = make(config, keyword_arguments(config))
    return wrap_for_agent(env, observations=not config.raw_observations)


def check_name(config: GymConfig) -> None:
    """Refuses an id that is not registered and resembles one that is; imports nothing.

    Other ids may belong to packages that only the actors' machines have.

    Raises:
      UserError: it is probably misspelt.
    """
    name = config.env_name
    known = {part for each in gymnasium.registry for part in (each, each.rpartition("-v")[0])}
    known |= set(importlib.metadata.entry_points(group=ENTRY_POINTS).names)
    if ":" in name or name in known:
        return
    if re.fullmatch(r"([A-Za-z_]\w*\.)+[A-Z]\w*", name):
        raise UserError(
            f"--env_name={name}: write {':'.join(name.rsplit('.', 1))} for your own class, or "
            f"MODULE:{name} if this id is registered by a module that only other machines have."
        )
    if hint := _nearest(name):
        raise UserError(
            f"--env_name={name}: {hint} (If it is registered by a package that only other "
            f"machines have, write --env_name=MODULE:{name}.)"
        )


def create_batch(env_ids: Any, config: GymConfig | None = None) -> VectorEnvironment | None:
    """All environments of an actor, if `env_name` makes vector environments.

    It does if it is a callable with a parameter `num_envs`, such as `gymnasium:make_vec`, and
    `env_kwargs` does not set it. Spaces are as in `create_environment`.

    Args:
      env_ids: <int32>[k].
      config: options; None: the defaults.

    Returns:
      The environments, or None if `env_name` makes single ones.

    Raises:
      UserError: if it is not a vector environment, rejects its arguments, a wrapper is not found,
        or actions are to be repeated.
    """
    config = config or GymConfig()
    arguments = keyword_arguments(config)
    factory = _factory(config.env_name)
    if factory is None or "num_envs" in arguments or "num_envs" not in parameters(factory):
        return None
    if config.num_action_repeats > 1:
        raise UserError(
            f"--num_action_repeats={config.num_action_repeats}: actions cannot be repeated in a "
            f"vector environment, which {_shown(config)} makes. Leave it out; if the environment "
            "has such an option, set it in --env_kwargs; frames then count its steps."
        )
    env = _call(config, factory, {**arguments, "num_envs": len(env_ids)})
    env = _wrapped(env, config)
    return VectorEnvironment(env, env_ids, raw_observations=config.raw_observations)


def make(config: GymConfig, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment `env_name` within its `env_wrappers`, not yet wrapped for agents.

    Args:
      config: options; its `env_kwargs` are not read.
      arguments: of the environment.

    Raises:
      UserError: if the environment or a wrapper is not found or rejects its arguments.
    """
    factory = _factory(config.env_name)
    env = as_gymnasium(_call(config, factory, dict(arguments)))
    if config.num_action_repeats > 1:
        env = RepeatActions(env, config.num_action_repeats)
    return _wrapped(env, config)


def keyword_arguments(config: GymConfig) -> dict[str, Any]:
    """The arguments of the environment in `env_kwargs`.

    Raises:
      UserError: they are not a JSON object.
    """
    text = config.env_kwargs
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise UserError(f"--env_kwargs is not JSON ({error}): {text}") from None
    if not isinstance(arguments, dict):
        raise UserError(f'--env_kwargs must be a JSON object such as {{"size": 5}}, not {text}')
    return arguments


def constructor(config: GymConfig) -> Callable[..., Any]:
    """What `make` calls for an environment: its class, usually.

    Raises:
      UserError: if the environment is not found.
    """
    name = config.env_name
    factory = _factory(name)
    if factory is not None:
        return factory
    with _told_in_words(name):
        entry_point = gymnasium.spec(name.rpartition(":")[2]).entry_point
        if isinstance(entry_point, str):
            return registration.load_env_creator(entry_point)
        assert entry_point is not None
        return entry_point


def _factory(name: str) -> Callable[..., Any] | None:
    """The callable named by `name`; None if it is an id of Gymnasium."""
    if name == from_python.NAME:
        return from_python.factory()
    if ":" in name:
        found = _attribute(name)
        return found if callable(found) else None
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
        return _attribute(point.value)
    return None


def _call(config: GymConfig, factory: Callable[..., Any] | None, arguments: dict[str, Any]) -> Any:
    """What `factory` makes, or what Gymnasium makes if that is None."""
    name, render_mode = config.env_name, config.render_mode
    if render_mode and (factory is None or _is_rendered(_shown(config), factory, render_mode)):
        arguments = {**arguments, "render_mode": render_mode}
    try:
        with _told_in_words(name):
            if factory is not None:
                return factory(**arguments)
            # The checker would warn at every step about harmless things.
            return gymnasium.make(name, disable_env_checker=True, **arguments)
    except TypeError as error:
        logging.exception("Making %s failed.", name)
        given = json.dumps(arguments, default=repr)
        raise UserError(f"{_shown(config)} rejects --env_kwargs={given}: {error}") from error


def _shown(config: GymConfig) -> str:
    return "your function" if config.env_name == from_python.NAME else config.env_name


def _wrapped(env: Any, config: GymConfig) -> Any:
    for name in config.env_wrappers:
        wrapper = _attribute(name) if ":" in name else None
        if not callable(wrapper):
            raise UserError(f"--env_wrappers: {name} not found; write module:callable.")
        env = wrapper(env)
    with _told_in_words(config.env_name):
        return with_frames(env, config.frame_size, config.grayscale, config.frame_stack)


@contextlib.contextmanager
def _told_in_words(name: str) -> Iterator[None]:
    """Turns Gymnasium's errors into errors for users."""
    try:
        yield
    except gymnasium.error.DependencyNotInstalled as error:
        raise UserError(f"--env_name={name}: {missing_dependency(error)}") from error
    except gymnasium.error.UnregisteredEnv as error:
        raise UserError(f"--env_name={name}: {_unknown(name, error)}") from error
    except gymnasium.error.Error as error:  # Deprecated, ...
        raise UserError(f"--env_name={name}: {error}") from error


def _unknown(name: str, error: Exception) -> str:
    """Suggests names similar to an unknown one."""
    module_name, _, attribute = name.rpartition(":")
    if attribute.isidentifier() and module_name in sys.modules:
        known = [n for n, value in vars(sys.modules[module_name]).items() if callable(value)]
        close = difflib.get_close_matches(attribute, known, n=1, cutoff=0.6)
        hint = f" Did you mean {module_name}:{close[0]}?" if close else ""
        return f"the module {module_name} has no class or function {attribute}.{hint}"
    return _nearest(attribute) or str(error)


def _nearest(name: str) -> str:
    """What to say about an id that is not registered; "" if no other resembles it."""
    ids = {known.lower(): known for known in gymnasium.registry}
    for found in difflib.get_close_matches(name.lower(), ids, n=1, cutoff=0.7):
        return f"there is no such environment. Did you mean {ids[found]}?"
    return ""


def _is_rendered(name: str, factory: Callable[..., Any], render_mode: str) -> bool:
    """Whether `factory`, which makes the environment `name`, takes a `render_mode`.

    Raises:
      UserError: it does not, and so would open no window. (Films need no render mode.)
    """
    taken = takes(factory, "render_mode")
    if not taken and render_mode == "human":
        raise UserError(
            f"{name} opens no window: it has no parameter render_mode. Add one, or make a video: "
            "--video=FILE."
        )
    return taken


def _attribute(name: str) -> Any:
    """The object at module:attribute, also module:Class.attribute; None if there is none."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        hint = ""
        if error.name and f"{module_name}.".startswith(f"{error.name}."):  # Not its own imports.
            hint = " Start in the folder that contains it, or add that folder to PYTHONPATH."
        raise UserError(f"{name}: cannot import {module_name} ({error}).{hint}") from error
    try:
        return functools.reduce(getattr, attribute.split("."), module)
    except AttributeError:
        return None


FAMILY = EnvironmentFamily(
    GymConfig, create_environment, create_batch, environment="env_name", check=check_name
)
