"""The interface between central inference and an algorithm: how to act."""

from __future__ import annotations

import abc
from typing import NamedTuple

import tensorflow as tf

from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput


class Acted(NamedTuple):
    """Result of one inference.

    Attributes:
      action: nest of [batch, ...], sent to the actors.
      agent_outputs: nest of [batch, ...], recorded in the unroll for training.
      agent_state: nest of [batch, ...], the recurrent state before the next step.
    """

    action: Nest
    agent_outputs: Nest
    agent_state: Nest


class Policy(abc.ABC):
    """Chooses actions; `learner.algorithm.Algorithm` adds how to train.

    Attributes:
      network: the network being trained. Inference runs it, or copies of it on dedicated devices.
      num_overlapping_steps: steps shared by consecutive unrolls of an environment (burn-in).
    """

    network: tf.Module
    num_overlapping_steps: int = 0

    @abc.abstractmethod
    def act(
        self,
        network: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        """Chooses actions for a batch.

        Args:
          network: the network to use: `self.network` or a copy.
          env_ids: <int32>[batch].
          prev_actions: nest of [batch, ...].
          env_outputs: nest of [batch, ...].
          agent_state: nest of [batch, ...].
        """
