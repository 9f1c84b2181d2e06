"""Reads gin configs of the on-policy agent, with errors that users understand."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import logging
import pathlib
import re
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gin
from gin import config as gin_internals
from gin import resource_reader

from seed_rl.agents.policy_gradient.modules import (  # noqa: F401 - registers the parts.
    advantages,
    constraints,
    continuous_control_agent,
    generalized_onpolicy_loss,
    gin_tf,
    input_normalization,
    policy_losses,
    policy_regularizers,
    popart,
    running_statistics,
)
from seed_rl.common.config import network_config
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.distributions import spaces
from seed_rl.common.errors import UserError
from seed_rl.common.system import shipped

if TYPE_CHECKING:
    import tensorflow as tf

    from seed_rl.common.distributions.base import ParametricDistribution

OPERATIVE_FILE = "operative_config.gin"
"""File in the logdir with the values of all parameters of all parts that the run uses."""

_SUFFIX = ".gin"
_BINDING = re.compile(r"^([\w./]+) =", re.MULTILINE)

gin.add_config_file_search_path(str(shipped.LAYOUT))  # For includes.

# Dataclasses that other agents set by flags, here as parts of a gin config.
optimizer_config = gin.external_configurable(OptimizerConfig, module="seed_rl")
conv_network_config = gin.external_configurable(network_config.ConvNetworkConfig, module="seed_rl")
mlp_network_config = gin.external_configurable(network_config.MLPNetworkConfig, module="seed_rl")
observation_config = gin.external_configurable(network_config.ObservationConfig, module="seed_rl")
# In its own module, as existing programs register it, because a name in two modules is ambiguous.
continuous_action_config = gin.external_configurable(spaces.continuous_action_config)


def create_loss(network: tf.Module, distribution: ParametricDistribution) -> Any:
    """The `GeneralizedOnPolicyLoss` that the config describes."""
    return generalized_onpolicy_loss.GeneralizedOnPolicyLoss(  # type: ignore[call-arg] # By gin.
        agent=network, parametric_action_distribution=distribution
    )


def load(
    files: Sequence[str],
    bindings: Sequence[str] = (),
    between: Callable[[], None] | None = None,
) -> bool:
    """Replaces the current gin config, of which there is one per process.

    Networks for further inference devices read it when the learner is created: load the config of
    another job only after that.

    Args:
      files: paths of gin files, relative to the working directory or to the folder that contains
        the package (`seed_rl/mujoco/gin/ppo.gin`).
      bindings: further bindings, which win over the files, such as `GAE.lambda_ = 0.9`.
      between: makes bindings that win over the files, but not over `bindings`. If given, missing
        files only cause a warning.

    Returns:
      Whether the files include a shipped one.

    Raises:
      UserError: a file is missing, or a binding is wrong; names the nearest valid one.
    """
    paths = []
    for name in files:
        try:
            paths.append(str(_found(name)))
        except UserError as error:
            if between is None:
                raise
            logging.warning("%s The parameters of the saved run replace it.", error)
    with gin.unlock_config(), _included_by_path():
        gin.clear_config()
        try:
            parsed = gin.parse_config_files_and_bindings(paths, [], finalize_config=False)
            if between is not None:
                between()
            # Without a newline, gin's errors do not show the line.
            gin.parse_config_files_and_bindings([], [f"{binding}\n" for binding in bindings])
        except tokenize.TokenError as error:
            raise UserError(f"Gin config: {error.args[0]}; is a bracket not closed?") from None
        except SyntaxError as error:
            line = f": {error.text.strip()}" if error.text else ""
            raise UserError(f"Gin config: {_explained(str(error))}{line}") from None
        except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"Gin config: {_explained(str(error))}") from None
    return any(_includes_shipped(file) for file in parsed)


def _includes_shipped(file: Any) -> bool:
    return is_shipped(str(file.filename)) or any(map(_includes_shipped, file.includes))


@contextlib.contextmanager
def errors_for_users() -> Iterator[None]:
    """Turns gin's errors about missing bindings, while parts are created, into a `UserError`."""
    try:
        yield
    except (TypeError, RuntimeError, ValueError) as error:
        text = str(error)
        if "Required bindings" in text or "In call to configurable" in text:
            raise UserError(f"Gin config: {_explained(text)}") from error
        raise


def bindings(part: str) -> dict[str, Any]:
    """The bindings of a part by parameter, without those in scopes; empty for unknown parts."""
    try:
        return dict(gin.get_bindings(part, resolve_references=False))
    except ValueError:
        return {}


def warn_of_unused(options: Mapping[str, Collection[str]]) -> None:
    """Logs the bindings of the config that have no effect, because nothing uses their part.

    Call it after all parts have been created.

    Args:
      options: parameters that options have set, by the flag to name; none for mere defaults.
    """
    used = set(_BINDING.findall(gin.operative_config_str()))
    unused = set(_BINDING.findall(gin.config_str())) - used
    for name, bound in options.items():
        idle = {full for full in unused if full in bound or full.endswith(tuple(bound))}
        unused -= idle
        if name.startswith("--") and len(idle) == len(bound):
            unused.add(name)
    if unused:
        logging.warning(
            "Settings without effect, since nothing in the gin config uses these parts: %s.",
            ", ".join(sorted(unused)),
        )


@contextlib.contextmanager
def _included_by_path() -> Iterator[None]:
    """Makes gin look up includes as paths only.

    Before it tries the next search path, gin looks for a Python package of the folder's name, which
    is an error for a folder without `__init__.py`.
    """
    readers = gin_internals._FILE_READERS
    kept = readers[:]
    readers[:] = [reader for reader in kept if reader[0] is not resource_reader.system_path_reader]
    try:
        yield
    finally:
        readers[:] = kept


def is_shipped(name: str) -> bool:
    """Whether `load` finds the file of this name in the package."""
    path = shipped.find(name)
    return path is not None and path.resolve().is_relative_to(shipped.LAYOUT / "seed_rl")


def _found(name: str) -> pathlib.Path:
    if path := shipped.find(name):
        return path
    known = sorted(
        str(path.relative_to(shipped.LAYOUT))
        for path in shipped.LAYOUT.glob(f"seed_rl/*/gin/*{_SUFFIX}")
    )
    raise UserError(f"--gin_config={name} does not exist.{_nearest(name, known)}")


def _explained(error: str) -> str:
    """Gin's message in one line, with the nearest known name if one is unknown."""
    text = " ".join(error.split())
    if match := re.search(r"No configurable matching (?:reference )?'@?([\w./]+)", error):
        text += _nearest(match[1].rpartition(".")[2].rpartition("/")[2], _known_parts())
    elif match := re.search(
        r"Configurable '([\w.]+)' doesn't have a parameter named '(\w+)'", error
    ):
        part = match[1].rpartition(".")[2]
        known = [f"{part}.{name}" for name in _parameters(match[1])]
        text += _nearest(f"{part}.{match[2]}", known)
    elif match := re.search(r"Failed to parse token '(\w+)'", error):
        name = match[1]
        text = (
            f"{name} is neither a number, True, False or None, nor a string in quotes ('{name}'), "
            f"nor a part (@{name}())"
        )
    return text


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if near:
        return f" Did you mean {near[0]}?"
    return f" Known: {', '.join(known)}." if known else ""


# gin 0.5, its last release, has no public list of what is registered.
def _known_parts() -> list[str]:
    return sorted({name.rpartition(".")[2] for name, _ in gin_internals._REGISTRY.items()})


def _parameters(part: str) -> list[str]:
    return list(inspect.signature(gin_internals._REGISTRY.get_match(part).wrapped).parameters)
