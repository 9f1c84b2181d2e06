"""Cuts unrolls of steps into transitions.

Names follow rlax: `x_tm1` belongs to the state before a transition, `x_t` to what follows it.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from seed_rl.common.types import EnvOutput


class Transitions(NamedTuple):
    """T transitions cut from an unroll of T + 1 steps, <float32>[time, batch].

    Attributes:
      r_t: reward, scaled and clipped.
      discount_t: discount of the next state's value; 0 if the episode ended.
      mask: 0 where there was no transition (the last state of an abandoned episode, whose action
        was never taken), 1 elsewhere.
    """

    r_t: tf.Tensor
    discount_t: tf.Tensor
    mask: tf.Tensor

    def bootstrapping_rewards(self, v_tm1: tf.Tensor) -> tf.Tensor:
        """Rewards <float32>[time, batch] with which abandoned episodes bootstrap.

        The value target of the last state of an abandoned episode is its own value. A reward equal
        to the value does exactly that, because the discount is 0 there: the temporal difference
        vanishes, and with it the advantage of the action that was never taken and the value loss.
        The step before it sees the value of the true last state, as if the episode had continued.

        Args:
          v_tm1: <float32>[time, batch] values of the states before each transition.
        """
        return tf.where(self.mask > 0, self.r_t, v_tm1)


def transitions(
    env_outputs: EnvOutput,
    discounting: float,
    reward_scaling: float = 1.0,
    max_abs_reward: float | None = None,
) -> Transitions:
    """The transitions from each step to the next.

    An abandoned episode reports its final state as an ordinary step; the next step has `done` and
    `abandoned` and starts another episode. Between the two the environment made no transition.

    Args:
      env_outputs: nest of [time + 1, batch, ...].
      discounting: discount factor per agent step.
      reward_scaling: factor of rewards, applied before clipping.
      max_abs_reward: rewards are clipped to at most this size; 0 or None: no clipping.
    """
    r_t = env_outputs.reward[1:] * reward_scaling
    if max_abs_reward:
        r_t = tf.clip_by_value(r_t, -max_abs_reward, max_abs_reward)
    done_t = tf.cast(env_outputs.done[1:], tf.float32)
    abandoned_t = tf.cast(env_outputs.abandoned[1:], tf.float32)
    return Transitions(r_t, (1.0 - done_t) * discounting, 1.0 - abandoned_t)
