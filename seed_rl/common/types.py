"""The tuples that travel between actor, inference and learner (no TensorFlow here)."""

from __future__ import annotations

from typing import Any, NamedTuple

from seed_rl.common.nest import Nest

ACTION_SPACE = "action_space"
"""Where in its server's status a learner tells which actions it will send (`spaces.describe`)."""


class EnvOutput(NamedTuple):
    """What an environment reports before each action.

    Attributes:
      reward: <float32>[...] result of the previous action; 0 at the first step of a life and
        where `abandoned`.
      done: <bool>[...] whether the previous action ended the episode; `observation` is then
        already the first of the next one. Where `episode_step` is not 0, only the learner's
        episode ended (a life was lost, say): the game continues with `observation`.
      observation: nest of [..., *shape].
      abandoned: <bool>[...] whether the episode that ended was cut off (truncated), so that the
        last step's value is to be bootstrapped and not taken as zero. Implies `done`.
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
      action: the action.
      env_output: an `EnvOutput`.
    """

    action: Nest
    env_output: EnvOutput


class Step(NamedTuple):
    """What is recorded of each step: nests of [batch, ...]."""

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
