"""Checks that a learner and an actor's environments match.

An actor takes over the options of its environments from its learner, which may continue a run that
was started with options other than the current defaults: an actor on another machine cannot see
that run.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Any

from absl import flags, logging

from seed_rl.common import nest
from seed_rl.common.acting import spaces
from seed_rl.common.acting.batched_env import BatchedEnv
from seed_rl.common.config.flag_definitions import same_value, shown
from seed_rl.common.config.options import environment_identity
from seed_rl.common.errors import UserError
from seed_rl.common.types import ACTION_SPACE
from seed_rl.grpc.numpy_client import Client

ENVIRONMENT = "environment"
"""Key of the options in the status of a learner's server."""

_SENT = 5  # Environment ids, run ids, environment outputs, unshaped rewards, successes.
_NAME = re.compile(r"[\w.+-]*")
_NUMBERS = (bool, int, float, type(None))


class OtherEnvironment(Exception):
    """The learner's options of the environments differ.

    Attributes:
      config: the actor's options, with the learner's for those that the user did not set.
    """

    def __init__(self, config: Any):
        super().__init__()
        self.config = config


def check_inference(client: Client, env: BatchedEnv, env_config: Any = None) -> None:
    """Compares the environment's options, observations and actions with the learner's.

    Args:
      client: of the learner's server.
      env: the environment.
      env_config: its options.

    Raises:
      OtherEnvironment: the environment should be created again, with other options.
      UserError: observations or actions differ, or the server has no inference function.
    """
    function = client.functions.get("inference")
    if function is None:
        raise UserError(
            "The server is not a learner: it has no function 'inference'. Check --server_address."
        )
    status = client.describe().get("status", {})
    check(env_config, status.get(ENVIRONMENT))
    try:
        expected = nest.map_structure(
            lambda spec: f"{spec.dtype}{list(spec.shape[1:])}",
            function.arguments[2].observation,
        )
    except (IndexError, AttributeError, TypeError):
        raise UserError(
            "The server's 'inference' takes other arguments than a learner's. Check "
            "--server_address, and install the same version on both sides."
        ) from None
    if (asked := len(function.arguments)) > _SENT:
        raise UserError(
            f"The learner asks for {asked} arguments, and this actor sends {_SENT}: install the "
            "same version on both sides."
        )
    given = nest.map_structure(str, spaces.specs(env.observation_space))
    if given != expected:
        raise UserError(
            f"The learner expects observations {expected}, but this actor's environment "
            f"returns {given}. Start learner and actors with the same environment options."
        )
    # Actions may be valid in both spaces and still mean different things.
    actions = status.get(ACTION_SPACE)
    taken = spaces.describe(env.action_space)
    if actions not in (None, taken):
        raise UserError(
            f"The learner's actions are {actions}, but this actor's environment takes {taken}. "
            "Start learner and actors with the same environment options."
        )


def describe(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The options that JSON can represent: only these can be compared between processes."""
    described = {}
    for name, value in environment.items():
        try:
            described[name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            continue
    return described


def counts(config: Any) -> dict[str, int]:
    """Numbers of environments among a dataclass's options: DeepMind Lab's levels depend on them."""
    return {n: getattr(config, n) for n in ("num_envs", "num_eval_envs") if hasattr(config, n)}


def check(config: Any, learner: Any) -> None:
    """Compares an actor's options of the environment with the learner's.

    A difference in an option that the user has set is only logged: actors may have different tasks.

    Args:
      config: a dataclass; options of any other kind are not compared.
      learner: from `describe`; anything else counts as no options.

    Raises:
      OtherEnvironment: the actor should create its environments again, with other options.
      UserError: it should, but those options could name code or files.
    """
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return
    if not isinstance(learner, Mapping):
        return
    own = describe({**environment_identity(config), **counts(config)})
    differing = {n: learner[n] for n in own if n in learner and not same_value(own[n], learner[n])}
    typed = {name for name in differing if name not in flags.FLAGS or flags.FLAGS[name].present}
    for name in sorted(typed):
        logging.warning(
            "--%s is %s here, and %s in the learner.",
            name,
            shown(own[name]),
            shown(learner[name]),
        )
    adopted = {name: value for name, value in differing.items() if name not in typed}
    if not adopted:
        return
    arguments = {name: f"--{name}={shown(value)}" for name, value in sorted(adopted.items())}
    if trusted := [arguments[name] for name in arguments if not _is_plain(adopted[name])]:
        raise UserError(
            f"The learner's environment has {' '.join(trusted)}, which an actor accepts only on "
            "its own command line. Start actors with the same environment options."
        )
    logging.info("Taking over the learner's environment options: %s.", " ".join(arguments.values()))
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in adopted.items()}
    raise OtherEnvironment(dataclasses.replace(config, **values))


def _is_plain(value: Any) -> bool:
    """Whether a value is neither code nor a path: a learner must not run anything in its actors."""
    elements = value if isinstance(value, list) else [value]
    return all(
        _NAME.fullmatch(element) if isinstance(element, str) else isinstance(element, _NUMBERS)
        for element in elements
    )
