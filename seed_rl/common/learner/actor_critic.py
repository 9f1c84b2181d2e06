"""Base of actor-critic algorithms: a network with policy and value, and how it acts."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.inference.network_calls import call_network, check_output
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner.algorithm import Algorithm, AlgorithmContext
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput


class ActorCriticAlgorithm(Algorithm):
    """Samples actions from the policy; evaluation environments take the most likely ones.

    A subclass adds a `loss`, or an `update`. Inference records the network's
    `AgentOutput(action, policy_logits, baseline)` of each step.
    """

    def __init__(self, context: AlgorithmContext):
        """Creates the network; call it in the scope of the training strategy.

        Args:
          context: its networks return `AgentOutput(action, policy_logits, baseline)`, where
            `policy_logits` parametrize its distribution.
        """
        self.distribution = context.distribution
        self.specs = context.specs
        self._create_network = context.create_network
        self._num_eval_envs = context.run.num_eval_envs
        self._num_training_envs = context.run.training_envs
        self.network = context.create_network()

    def make_network(self) -> tf.Module:
        return self._create_network()

    def call(
        self,
        network: tf.Module,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> tuple[Any, Nest]:
        """(`AgentOutput` of [batch, ...], new state) of one step."""
        return call_network(network, prev_actions, env_outputs, agent_state)

    def act(
        self,
        network: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        output, agent_state = self.call(network, prev_actions, env_outputs, agent_state)
        self._check(output)
        if self._num_eval_envs:
            greedy = self.distribution.mode(output.policy_logits)
            evaluated = env_ids >= self._num_training_envs
            choose = functools.partial(_choose_rows, evaluated)
            output = output._replace(action=tf.nest.map_structure(choose, greedy, output.action))
        return Acted(output.action, output, agent_state)

    def _check(self, output: Any) -> None:
        """Refuses outputs that would act or train in an unintended way, or not at all."""
        check_output(
            output,
            "AgentOutput(action, policy_logits, baseline) of seed_rl.common.networks.actor_critic",
            required=("action", "policy_logits"),
            float32=("policy_logits", "baseline"),
        )
        # A subclass with a loss of its own may have other values, even nests.
        logits, n = output.policy_logits, self.distribution.param_size
        if tf.is_tensor(logits) and not logits.shape.is_compatible_with([None, n]):
            raise UserError(
                f"The network's policy_logits are {logits.shape}, but must be [batch, {n}], the "
                "parameters of the action distribution."
            )
        baseline: Any = getattr(output, "baseline", None)  # SAC's networks have critics.
        if not tf.is_tensor(baseline):
            return
        if baseline.shape.rank == 0 or baseline.shape[1:] == [1]:
            raise UserError(
                f"The network's baseline is {baseline.shape}, but must be [batch], one value for "
                "each environment: tf.squeeze(..., axis=-1)."
            )

    def evaluate(
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        output, agent_state = self.call(self.network, prev_actions, env_outputs, agent_state)
        return self.distribution.mode(output.policy_logits), agent_state


def _choose_rows(condition: tf.Tensor, greedy: tf.Tensor, sampled: tf.Tensor) -> tf.Tensor:
    """Rows of `greedy` [batch, ...] where `condition` <bool>[batch] holds, else of `sampled`."""
    ones = [1] * (greedy.shape.rank - 1)
    return tf.where(tf.reshape(condition, [-1, *ones]), greedy, sampled)
