"""Q-networks, feed-forward or with LSTMs."""

from __future__ import annotations

import tensorflow as tf

from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.networks.actor_critic import ActorCritic, AgentOutput


class QNetwork(ActorCritic):
    """An actor-critic whose logits are Q-values, and whose baseline is the largest of them."""

    def _heads(self, features: tf.Tensor, observation: Nest) -> AgentOutput:
        q_values = masked(self._policy(features), observation)
        return AgentOutput(self._distribution.mode(q_values), q_values, tf.reduce_max(q_values, -1))
