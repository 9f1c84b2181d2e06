"""Whether a learner and an actor's environments fit together."""

from __future__ import annotations

from seed_rl.common import nest
from seed_rl.common.acting import spaces
from seed_rl.common.acting.batched_env import BatchedEnv
from seed_rl.common.errors import UserError
from seed_rl.common.types import ACTION_SPACE
from seed_rl.grpc.numpy_client import Client


def check_inference(client: Client, env: BatchedEnv) -> None:
    """Compares the environment's observations and actions with the learner's.

    Raises:
      UserError: they differ, or the server has no inference function.
    """
    function = client.functions.get("inference")
    if function is None:
        raise UserError("The server is not a learner: it has no function 'inference'.")
    try:
        expected = nest.map_structure(
            lambda spec: f"{spec.dtype}{list(spec.shape[1:])}",
            function.arguments[2].observation,
        )
    except (IndexError, AttributeError, TypeError):
        raise UserError(
            "The server is not a learner: its 'inference' takes different arguments."
        ) from None
    given = nest.map_structure(str, spaces.specs(env.observation_space))
    if given != expected:
        raise UserError(
            f"The learner expects observations {expected}, but this actor's environment "
            f"returns {given}. Start learner and actors with the same environment options."
        )
    # Checked here because every action may be valid in both spaces and yet mean something else.
    actions = client.stats().get("status", {}).get(ACTION_SPACE)
    taken = spaces.describe(env.action_space)
    if actions not in (None, taken):
        raise UserError(
            f"The learner's actions are {actions}, but this actor's environment takes {taken}. "
            "Start learner and actors with the same environment options."
        )
