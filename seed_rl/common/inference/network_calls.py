"""Calling networks of either of the two forms that exist."""

from __future__ import annotations

import inspect
from typing import Any

from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput

_REQUIRED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def call_network(
    agent: Any,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    agent_state: Nest,
    unroll: bool = False,
    is_training: bool = False,
) -> tuple[Any, Nest]:
    """Runs a network of ours, or one written for the other form.

    Ours is `agent(prev_actions, env_outputs, agent_state, unroll, is_training)`, the other
    `agent((prev_actions, env_outputs), agent_state, unroll, is_training)`. The latter, with two
    required arguments, may do without `is_training`.

    Returns:
      (AgentOutput, new state), whatever the network's are.
    """
    parameters = inspect.signature(agent.__call__).parameters
    required = [
        p
        for p in parameters.values()
        if p.kind in _REQUIRED and p.default is inspect.Parameter.empty
    ]
    if len(required) != 2:
        return agent(prev_actions, env_outputs, agent_state, unroll=unroll, is_training=is_training)
    options = {"is_training": is_training} if "is_training" in parameters else {}
    return agent((prev_actions, env_outputs), agent_state, unroll=unroll, **options)
