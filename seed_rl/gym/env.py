"""Any Gymnasium environment (no TensorFlow here)."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
from absl import logging
from gymnasium.envs import registration

from seed_rl.common.acting.env_adapters import as_gymnasium
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.config.options import as_config, option, provide_flags
from seed_rl.common.errors import UserError
from seed_rl.common.system.extras import missing_dependency


@dataclasses.dataclass(frozen=True)
class GymConfig:
    """Gymnasium: the environment."""

    env_name: str = option(
        "CartPole-v1",
        "Registered id; module:id to import a module first; or module:callable, for environments "
        "that are not registered or have gym's old interface.",
    )
    env_kwargs: str = option("{}", "Arguments of the environment, as a JSON object.")
    env_wrappers: tuple[str, ...] = option(
        (), "Wrappers as module:callable, innermost first; each is called with the environment."
    )
    raw_observations: bool = option(
        False, "Whether to pass observations unchanged, instead of as one-hot and float32."
    )
    render_mode: str | None = option(
        None,
        "human opens a window, rgb_array returns images. Default: no rendering.",
        neutral=True,
    )


provide_flags(GymConfig)  # Existing programs expect the flags on import.


def create_environment(task: int, config: Any = None) -> gymnasium.Env[Any, Any]:
    """One environment.

    Args:
      task: environment id; unused.
      config: options, or anything that `as_config` takes.

    Returns:
      An environment whose observations are nests of <uint8> and <float32> arrays and whose Box
      actions are vectors in [-1, 1].

    Raises:
      UserError: if the environment or a wrapper is not found or rejects its arguments.
    """
    del task
    config = as_config(GymConfig, config)
    env = make(config, keyword_arguments(config))
    return wrap_for_agent(env, observations=not config.raw_observations)


def make(config: GymConfig, arguments: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """The environment `env_name` within its `env_wrappers`, not yet wrapped for agents.

    Args:
      config: options; its `env_kwargs` are not read.
      arguments: of the environment.

    Raises:
      UserError: if the environment or a wrapper is not found or rejects its arguments.
    """
    env = _make(config.env_name, dict(arguments), config.render_mode)
    for name in config.env_wrappers:
        wrapper = _attribute(name) if ":" in name else None
        if not callable(wrapper):
            raise UserError(f"--env_wrappers: {name} not found; write module:callable.")
        env = wrapper(env)
    return env


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
    factory = _attribute(name) if ":" in name else None
    if callable(factory):
        return factory
    with _told_in_words(name):
        entry_point = gymnasium.spec(name.rpartition(":")[2]).entry_point
        if isinstance(entry_point, str):
            return registration.load_env_creator(entry_point)
        assert entry_point is not None
        return entry_point


def _make(name: str, arguments: dict[str, Any], render_mode: str | None) -> gymnasium.Env[Any, Any]:
    factory = _attribute(name) if ":" in name else None
    if render_mode and (not callable(factory) or _takes(factory, "render_mode")):
        arguments = {**arguments, "render_mode": render_mode}
    try:
        with _told_in_words(name):
            if callable(factory):
                return as_gymnasium(factory(**arguments))
            # The checker would warn at every step about harmless things.
            return gymnasium.make(name, disable_env_checker=True, **arguments)
    except TypeError as error:
        logging.exception("Making %s failed.", name)
        shown = json.dumps(arguments, default=repr)
        raise UserError(f"{name} rejects --env_kwargs={shown}: {error}") from error


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
    """Names the registered id that is most similar to an unknown one."""
    known = {name.lower(): name for name in gymnasium.registry}
    unknown = name.rpartition(":")[2].lower()
    for close in difflib.get_close_matches(unknown, known, n=1, cutoff=0.7):
        return f"there is no such environment. Did you mean {known[close]}?"
    return str(error)


def _takes(function: Any, argument: str) -> bool:
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def _attribute(name: str) -> Any:
    """The object at module:attribute, or None if the module has no such attribute."""
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        hint = ""
        if error.name and f"{module_name}.".startswith(f"{error.name}."):  # Not its own imports.
            hint = " Start in the folder that contains it, or add that folder to PYTHONPATH."
        raise UserError(f"{name}: cannot import {module_name} ({error}).{hint}") from error
    return getattr(module, attribute, None) if attribute.isidentifier() else None
