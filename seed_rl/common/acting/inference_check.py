"""Whether a learner and an actor's environments fit together."""

from __future__ import annotations

from typing import Any

from seed_rl.common import nest
from seed_rl.common.acting import environment_agreement, spaces
from seed_rl.common.acting.batched_env import BatchedEnv
from seed_rl.common.errors import UserError
from seed_rl.common.types import ACTION_SPACE
from seed_rl.grpc.numpy_client import Client

_SENT = 5  # Ids, runs, outputs of environments, unshaped rewards, successes.


def check_inference(client: Client, env: BatchedEnv, env_config: Any = None) -> None:
    """Compares the environment's options, observations and actions with the learner's.

    Args:
      client: of the learner's server.
      env: the environment.
      env_config: its options.

    Raises:
      OtherEnvironment: it should be created again, with other options.
      UserError: they differ, or the server has no inference function.
    """
    function = client.functions.get("inference")
    if function is None:
        raise UserError("The server is not a learner: it has no function 'inference'.")
    status = client.describe().get("status", {})
    environment_agreement.check(env_config, status.get(environment_agreement.ENVIRONMENT))
    try:
        expected = nest.map_structure(
            lambda spec: f"{spec.dtype}{list(spec.shape[1:])}",
            function.arguments[2].observation,
        )
    except (IndexError, AttributeError, TypeError):
        raise UserError(
            "The server is not a learner: its 'inference' takes different arguments."
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
