"""The tuples exchanged between actor, inference and learner. TensorFlow is not imported."""

from __future__ import annotations

from typing import Any, NamedTuple

from seed_rl.common.nest import Nest

ACTION_SPACE = "action_space"
"""Key of the learner's server status that describes its action space (`spaces.describe`)."""

LARGEST = 1e9
"""Largest magnitude of rewards, observations and recurrent states. Larger ones count as not finite:
squares of gradients would overflow in float32. `inference_store.cc` repeats the value.
"""


class Spaces(NamedTuple):
    """The Gymnasium spaces of one environment."""

    observation: Any
    action: Any


class EnvOutput(NamedTuple):
    """What an environment reports before each action.

    Attributes:
      reward: <float32>[...] result of the previous action; 0 at the first step after an actor
        (re)connects and where `abandoned`.
      done: <bool>[...] whether the previous action ended the episode; `observation` is then
        already the first of the next one. If `episode_step` is not 0, only the learner's episode
        ended (a life of the game was lost, say): the game continues with `observation`.
      observation: nest of [..., *shape].
      abandoned: <bool>[...] whether the episode that ended was truncated, so that the value of its
        last step must be bootstrapped, not taken as zero. Implies `done`.
      episode_step: <int32>[...] agent steps since the environment was last reset.
    """

    reward: Any
    done: Any
    observation: Any
    abandoned: Any
    episode_step: Any


class Specs(NamedTuple):
    """Nests of `tf.TensorSpec` of one environment, without batch dimension.

    Attributes:
      action: specs of an action.
      env_output: an `EnvOutput` of specs.
    """

    action: Nest
    env_output: EnvOutput


class Step(NamedTuple):
    """The record of one step: nests of [batch, ...]."""

    prev_actions: Nest
    env_outputs: EnvOutput
    agent_outputs: Nest


class Unroll(NamedTuple):
    """A batch of unrolls, time-major.

    Attributes:
      agent_state: nest of [batch, ...], the recurrent state before the first step.
      prev_actions: nest of [time, batch, ...].
      env_outputs: nest of [time, batch, ...].
      agent_outputs: nest of [time, batch, ...], as recorded at inference.
    """

    agent_state: Nest
    prev_actions: Nest
    env_outputs: EnvOutput
    agent_outputs: Nest


class StoredUnrolls(NamedTuple):
    """A batch of complete unrolls, as they leave the inference store.

    Attributes:
      env_ids: <int32>[batch], the environment of each unroll.
      agent_state: nest of [batch, ...], the recurrent state before the first step.
      steps: nest of [overlap + unroll_length + 1, batch, ...].
    """

    env_ids: Any
    agent_state: Nest
    steps: Nest
