"""The V-trace loss: pure functions of a batch of unrolls.

Espeholt et al. 2018, section 4.2. Every term is a mean over the real transitions of the batch, so
that costs mean the same for any batch size and unroll length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.inference.agent_calls import call_agent
from seed_rl.common.learner import replicas
from seed_rl.common.nest import Nest
from seed_rl.common.returns import vtrace
from seed_rl.common.types import EnvOutput

_MIN_COST, _MAX_COST = 1e-8, 1e3


class EntropyCost(tf.Module):
    """Weight of the entropy bonus: fixed, or adjusted towards a target entropy.

    With a target it is a Lagrange multiplier, trained by the same optimizer as the network: its
    variable belongs among the trained variables and into checkpoints. The variable is the
    logarithm of the cost over `entropy_cost_adjustment_speed`, so that the cost stays positive and
    an optimizer that moves every weight at about the learning rate changes the cost by that rate
    times the speed, relatively.
    """

    def __init__(self, config: VTraceConfig, name: str = "entropy_cost"):
        """Makes the variable, if there is a target.

        Args:
          config: `entropy_cost` is the weight at the start.
          name: of the module.

        Raises:
          UserError: there is a target, but the weight at the start is 0.
        """
        super().__init__(name=name)
        if config.target_entropy is not None and config.entropy_cost == 0:
            raise UserError("--target_entropy needs an --entropy_cost above 0 to begin with.")
        self._config = config
        self._speed = config.entropy_cost_adjustment_speed
        self.adjusted = config.target_entropy is not None and self._speed > 0
        if self.adjusted:
            initial = math.log(config.entropy_cost) / self._speed
            self.scaled_log_cost = tf.Variable(initial, dtype=tf.float32, name="scaled_log_cost")

    def __call__(self) -> tf.Tensor:
        """The weight, <float32>[]; differentiable if it is adjusted."""
        if not self.adjusted:
            return tf.constant(self._config.entropy_cost, tf.float32)
        # The bounds keep exp finite; at a bound the gradient still leads back inside.
        log_cost = self._speed * self.scaled_log_cost
        bounded = tf.clip_by_value(log_cost, math.log(_MIN_COST), math.log(_MAX_COST))
        return tf.exp(log_cost + tf.stop_gradient(bounded - log_cost))

    def adjustment_loss(self, entropy: tf.Tensor) -> tf.Tensor:
        """Lowers the cost where the entropy is above its target, and raises it where below.

        Args:
          entropy: <float32>[] mean entropy of the policy; no gradient flows into it.

        Returns:
          <float32>[], to be added to the loss.
        """
        if not self.adjusted:
            return tf.constant(0.0)
        return self() * tf.stop_gradient(entropy - self._config.target_entropy)


class Transitions(NamedTuple):
    """T transitions cut from an unroll of T + 1 steps, <float32>[time, batch].

    Attributes:
      rewards: of the action of each step, scaled and clipped.
      discounts: of what follows; 0 where the episode ended.
      real: 0 where the step was the last state of an abandoned episode, whose action nobody took,
        1 elsewhere.
    """

    rewards: tf.Tensor
    discounts: tf.Tensor
    real: tf.Tensor


def transitions(config: VTraceConfig, env_outputs: EnvOutput) -> Transitions:
    """What happened after each step but the last.

    An episode that is cut off reports its final state as an ordinary step; the next step has
    `done` and `abandoned` and begins another episode. From the former to the latter there is no
    transition in the game.

    Args:
      config: discount, scale and bound of rewards.
      env_outputs: of [time + 1, batch].
    """
    rewards = env_outputs.reward[1:] * config.reward_scaling
    if config.max_abs_reward:
        rewards = tf.clip_by_value(rewards, -config.max_abs_reward, config.max_abs_reward)
    done = tf.cast(env_outputs.done[1:], tf.float32)
    abandoned = tf.cast(env_outputs.abandoned[1:], tf.float32)
    return Transitions(rewards, (1.0 - done) * config.discounting, 1.0 - abandoned)


def vtrace_returns(
    config: VTraceConfig,
    steps: Transitions,
    target_log_probs: tf.Tensor,
    behaviour_log_probs: tf.Tensor,
    values: tf.Tensor,
) -> vtrace.VTraceReturns:
    """V-trace in which abandoned episodes are bootstrapped from their last state.

    At that state the value target is the value itself. A reward equal to the value says exactly
    that, the discount being 0 there: the temporal difference vanishes, and so do the advantage of
    the action that was never taken and the value loss. The step before it then sees the value of
    the true last state, as if the episode had gone on.

    Args:
      config: thresholds and lambda.
      steps: of [time, batch].
      target_log_probs: <float32>[time, batch].
      behaviour_log_probs: <float32>[time, batch].
      values: <float32>[time + 1, batch], the last row being the bootstrap value.
    """
    rewards = tf.where(steps.real > 0, steps.rewards, values[:-1])
    return vtrace.from_importance_weights(
        target_action_log_probs=target_log_probs,
        behaviour_action_log_probs=behaviour_log_probs,
        discounts=steps.discounts,
        rewards=rewards,
        values=values[:-1],
        bootstrap_value=values[-1],
        clip_rho_threshold=config.max_importance_weight,
        clip_pg_rho_threshold=config.max_pg_importance_weight,
        lambda_=config.lambda_,
    )


def compute_loss(
    config: VTraceConfig,
    parametric_action_distribution: ParametricDistribution,
    agent: Callable[..., Any],
    agent_state: Nest,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    agent_outputs: Any,
    entropy_cost: EntropyCost,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """The loss of a batch of unrolls of T + 1 steps, T of which are trained on.

    Args:
      config: options.
      parametric_action_distribution: that `policy_logits` parametrize.
      agent: the network, of either form of `call_agent`.
      agent_state: nest of [batch, ...], before the first step.
      prev_actions: nest of [time + 1, batch, ...].
      env_outputs: nest of [time + 1, batch, ...]; any tuple of the five fields will do.
      agent_outputs: `AgentOutput` of [time + 1, batch, ...], recorded at inference; its
        `policy_logits` are the behaviour policy's.
      entropy_cost: weight of the entropy bonus.

    Returns:
      (loss <float32>[], metrics <float32>[] by name).
    """
    env_outputs = EnvOutput(*env_outputs)
    learned, _ = call_agent(agent, prev_actions, env_outputs, agent_state, True, True)
    steps = transitions(config, env_outputs)
    mean = replicas.BatchMean(steps.real)
    actions = tf.nest.map_structure(lambda t: t[:-1], agent_outputs.action)
    target = parametric_action_distribution(learned.policy_logits[:-1])
    behaviour = parametric_action_distribution(agent_outputs.policy_logits[:-1])
    target_log_probs = target.log_prob(actions)
    behaviour_log_probs = behaviour.log_prob(actions)
    returns = vtrace_returns(config, steps, target_log_probs, behaviour_log_probs, learned.baseline)

    # The weight of an action that the policy excludes by now is 0, its log probability -inf.
    policy_loss = -mean(tf.math.multiply_no_nan(target_log_probs, returns.pg_advantages))
    value_errors = returns.vs - learned.baseline[:-1]
    baseline_loss = 0.5 * mean(tf.square(value_errors))
    entropy = mean(target.entropy())
    cost = entropy_cost()
    kl = mean(behaviour.kl_divergence(target))

    loss = (
        policy_loss
        + config.baseline_cost * baseline_loss
        - tf.stop_gradient(cost) * entropy
        + entropy_cost.adjustment_loss(entropy)
    )
    if config.kl_cost:  # The divergence may be infinite, which no cost of 0 takes back.
        loss += config.kl_cost * kl
    rhos = tf.exp(target_log_probs - behaviour_log_probs)
    metrics = {
        "losses/policy": policy_loss,
        "losses/baseline": baseline_loss,
        "losses/kl": kl,
        "policy/entropy": entropy,
        "policy/entropy_cost": cost,
        "policy/importance_weight": mean(rhos),
        "policy/importance_weight_clipped": mean(
            tf.cast(rhos > config.max_importance_weight, tf.float32)
        ),
        "value/baseline": mean(learned.baseline[:-1]),
        "value/target": mean(returns.vs),
        "value/abs_error": mean(tf.abs(value_errors)),
        "policy/advantage": mean(returns.pg_advantages),
    }
    return loss, {name: tf.stop_gradient(value) for name, value in metrics.items()}
