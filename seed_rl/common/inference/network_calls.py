"""Calls networks in either of two forms."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput

_REQUIRED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_network(
    network: Any,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    agent_state: Nest,
    unroll: bool = False,
    is_training: bool = False,
) -> tuple[Any, Nest]:
    """Calls a network in the form that its signature asks for.

    This package uses `network(prev_actions, env_outputs, agent_state, unroll, is_training)`.
    Networks with only two required arguments have the other form,
    `network((prev_actions, env_outputs), agent_state, unroll, is_training)`, and may lack
    `is_training`.

    Returns:
      (AgentOutput, new state), as the network returns them.

    Raises:
      UserError: the network returns something else.
    """
    parameters = inspect.signature(network.__call__).parameters
    takes_anything = any(p.kind == p.VAR_POSITIONAL for p in parameters.values())
    if takes_anything and isinstance(network, tf.keras.layers.Layer):
        parameters = inspect.signature(network.call).parameters
    required = [
        p
        for p in parameters.values()
        if p.kind in _REQUIRED and p.default is inspect.Parameter.empty
    ]
    if len(required) != 2:
        returned = network(
            prev_actions, env_outputs, agent_state, unroll=unroll, is_training=is_training
        )
        return _checked(network, returned)
    options = {"is_training": is_training} if "is_training" in parameters else {}
    returned = network((prev_actions, env_outputs), agent_state, unroll=unroll, **options)
    return _checked(network, returned)


def _checked(network: Any, returned: Any) -> tuple[Any, Nest]:
    if isinstance(returned, (tuple, list)) and len(returned) == 2:
        return returned[0], returned[1]
    name, given = type(network).__name__, type(returned).__name__
    raise UserError(f"The network {name} must return (AgentOutput, new state), not {given}.")


def check_output(output: Any, form: str, required: Sequence[str], float32: Sequence[str]) -> None:
    """Refuses an output without `required` fields, or with `float32` ones of another type.

    Args:
      output: what the network returned first.
      form: what it must return, for the message.
      required: names of fields.
      float32: names of fields, which an output may lack.

    Raises:
      UserError: it would act or train in an unintended way, or not at all.
    """
    if missing := [name for name in required if not hasattr(output, name)]:
        raise UserError(
            f"The network must return {form}, but {type(output).__name__} has no "
            f"{', '.join(missing)}."
        )
    for name in float32:
        value: Any = getattr(output, name, None)
        if tf.is_tensor(value) and value.dtype != tf.float32:
            raise UserError(
                f"The network's {name} is {value.dtype.name}, but must be float32: cast it at the "
                "end, whatever type the layers compute in."
            )
