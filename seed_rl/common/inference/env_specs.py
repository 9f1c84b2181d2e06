"""Tensor specs of an environment's observations and actions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from seed_rl.common.acting import env_adapters, spaces
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest, map_structure
from seed_rl.common.types import EnvOutput, Spaces, Specs


def probe_spaces(create_env: Callable[[int, Any], Any], env_config: Any) -> Spaces:
    """Creates an environment, reads its spaces and closes it.

    Raises:
      UserError: the environment cannot be created.
    """
    try:
        with _without_osmesa():
            env = env_adapters.as_gymnasium(create_env(0, env_config))
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"Cannot create the environment: {error!r}") from error
    try:
        return Spaces(observation=env.observation_space, action=env.action_space)
    finally:
        env.close()


@contextlib.contextmanager
def _without_osmesa() -> Iterator[None]:
    """Keeps MuJoCo from loading OSMesa on import, which aborts a process with TensorFlow at exit.

    Actors import MuJoCo in processes of their own, and render there.
    """
    if os.environ.get("MUJOCO_GL") != "osmesa":
        yield
        return
    os.environ["MUJOCO_GL"] = "disabled"
    try:
        yield
    finally:
        os.environ["MUJOCO_GL"] = "osmesa"


def env_output_specs(observation_space: Any) -> EnvOutput:
    """`EnvOutput` of `tf.TensorSpec` for one environment, without a batch dimension."""
    return EnvOutput(
        reward=tf.TensorSpec([], tf.float32, "reward"),
        done=tf.TensorSpec([], tf.bool, "done"),
        observation=tensor_spec_from_gym_space(observation_space),
        abandoned=tf.TensorSpec([], tf.bool, "abandoned"),
        episode_step=tf.TensorSpec([], tf.int32, "episode_step"),
    )


def specs(observation_space: Any, action_space: Any) -> Specs:
    """Specs of one environment, without a batch dimension."""
    return Specs(
        action=tensor_spec_from_gym_space(action_space, "action"),
        env_output=env_output_specs(observation_space),
    )


def call_signature(specs: Specs) -> tuple[Nest, ...]:
    """What `inference` takes of a batch of environments; see `CentralInference`."""
    return (
        tf.TensorSpec([None], tf.int32, "env_ids"),
        tf.TensorSpec([None], tf.int64, "run_ids"),
        map_structure(lambda s: tf.TensorSpec([None, *s.shape], s.dtype, s.name), specs.env_output),
        tf.TensorSpec([None], tf.float32, "raw_rewards"),
        tf.TensorSpec([None], tf.float32, "successes"),
    )


def tensor_spec_from_gym_space(space: Any, name: str = "observation") -> Nest:
    """Nest of `tf.TensorSpec` of a space's values, as sent over the wire.

    Args:
      space: any space that `spaces.specs` supports, or its equivalent of old gym.
      name: name of the specs, also used in error messages.

    Raises:
      UserError: the values of the space are not tensors of a fixed shape.
    """
    specs = spaces.specs(env_adapters.as_gymnasium_space(space), name)
    return map_structure(lambda s: tf.TensorSpec(s.shape, s.dtype, s.name), specs)
