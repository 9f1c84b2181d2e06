"""What the learner must know of an environment to make its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.acting import env_adapters, spaces
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest, map_structure
from seed_rl.common.types import EnvOutput, Specs


class Spaces(NamedTuple):
    """Gymnasium spaces of an environment."""

    observation: Any
    action: Any


def probe_spaces(create_env: Callable[[int, Any], Any], env_config: Any) -> Spaces:
    """The spaces of an environment, which is made and closed again.

    Raises:
      UserError: it cannot be made.
    """
    try:
        env = env_adapters.as_gymnasium(create_env(0, env_config))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"The environment cannot be made: {error!r}") from error
    try:
        return Spaces(env.observation_space, env.action_space)
    finally:
        env.close()


def env_output_specs(observation_space: Any) -> EnvOutput:
    """`EnvOutput` of `tf.TensorSpec` of one environment, without batch dimension."""
    return EnvOutput(
        reward=tf.TensorSpec([], tf.float32, "reward"),
        done=tf.TensorSpec([], tf.bool, "done"),
        observation=tensor_spec_from_gym_space(observation_space),
        abandoned=tf.TensorSpec([], tf.bool, "abandoned"),
        episode_step=tf.TensorSpec([], tf.int32, "episode_step"),
    )


def specs(observation_space: Any, action_space: Any) -> Specs:
    """Specs of one environment with these spaces."""
    return Specs(
        action=tensor_spec_from_gym_space(action_space, "action"),
        env_output=env_output_specs(observation_space),
    )


def tensor_spec_from_gym_space(space: Any, name: str = "observation") -> Nest:
    """Nest of `tf.TensorSpec` of a space's values, as they cross the wire.

    Args:
      space: see `spaces.specs`.
      name: what to call it in messages.

    Raises:
      UserError: if the space has no tensors of a fixed shape.
    """
    return map_structure(
        lambda s: tf.TensorSpec(s.shape, s.dtype, s.name), spaces.specs(space, name)
    )
