"""The loss of the on-policy agent: advantages, policy, value function and regularization.

Andrychowicz et al. 2020, appendix B. Every term is a mean over the unmasked transitions of the
batch, so that costs mean the same for any batch size.
"""

from __future__ import annotations

import abc
import inspect
import math
from collections.abc import Callable
from typing import Any

import gin
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules.logging_module import LoggingModule
from seed_rl.common.distributions.base import Actions, ParametricDistribution
from seed_rl.common.distributions.continuous import mean_std
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.learner import replicas, variables
from seed_rl.common.learner.coefficients import Coefficient
from seed_rl.common.nest import Nest
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.returns.advantages import AdvantageEstimator
from seed_rl.common.types import EnvOutput


class PolicyLoss(tf.Module):
    """Interface of policy losses. Further arguments are passed to those that accept them.

    These are `actions` [time, batch, ...], `target_logits` and `behaviour_logits` <float32>[time,
    batch, params], `parametric_action_distribution`, and `mask` <float32>[time, batch], 0 for
    actions that were never taken.
    """

    @abc.abstractmethod
    def __call__(
        self,
        advantages: tf.Tensor,
        target_action_log_probs: tf.Tensor,
        behaviour_action_log_probs: tf.Tensor,
    ) -> tf.Tensor:
        """The loss <float32>[] of advantages and log probabilities <float32>[time, batch]."""


class RegularizationLoss(tf.Module):
    """Interface of regularizers. `with_logging` and `mask` are passed if accepted."""

    @abc.abstractmethod
    def __call__(
        self,
        parametric_action_distribution: ParametricDistribution,
        target_action_logits: tf.Tensor,
        behaviour_action_logits: tf.Tensor,
        actions: Actions,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Losses <float32>[time, batch] of logits <float32>[time, batch, params], and a further
        loss <float32>[] (that adjusts coefficients, say).
        """


@gin.configurable
class GeneralizedOnPolicyLoss(tf.Module, LoggingModule):
    """The sum of policy loss, value loss and regularization of a batch of unrolls."""

    def __init__(
        self,
        agent: Callable[..., Any],
        reward_normalizer: PopArt | None,
        parametric_action_distribution: ParametricDistribution,
        advantage_estimator: AdvantageEstimator,
        policy_loss: Callable[..., tf.Tensor] | None,
        discount_factor: float,
        regularizer: Callable[..., tuple[tf.Tensor, tf.Tensor]] | None = None,
        max_abs_reward: float | None = None,
        handle_abandoned_episodes_properly: bool = True,
        huber_delta: float | None = None,
        value_ppo_style_clip_eps: float | None = None,
        baseline_cost: float = 1.0,
        include_regularization_in_returns: bool = False,
        frame_skip: int = 1,
        reward_scaling: float = 1.0,
    ):
        """Puts the parts together.

        Args:
          agent: the network, in either call form of `call_network`.
          reward_normalizer: `PopArt` for normalized value targets; None: targets as they are.
          parametric_action_distribution: of the network's `policy_logits`.
          advantage_estimator: of `seed_rl.common.returns.advantages`.
          policy_loss: see `PolicyLoss`; None in subclasses with a `_loss` of their own.
          discount_factor: per environment frame.
          regularizer: see `RegularizationLoss`; None for none.
          max_abs_reward: rewards are clipped to this absolute value; 0 or None: no clipping.
          handle_abandoned_episodes_properly: whether the value of an abandoned episode's last state
            is bootstrapped. Otherwise the episode counts as terminated there.
          huber_delta: errors above it enter the value loss linearly; None: mean squared error.
          value_ppo_style_clip_eps: if set, the value loss is the larger one of two: for the
            prediction, and for the prediction clipped to at most this distance (in normalized
            units) from the one made when acting. It bounds the network's output, not PopArt's scale
            and shift.
          baseline_cost: weight of the value loss.
          include_regularization_in_returns: whether each reward is reduced by the regularizer's
            loss at the action before it.
          frame_skip: frames per step; the discount per step is `discount_factor ** frame_skip`.
          reward_scaling: factor of rewards, applied after clipping.
        """
        super().__init__()
        self._agent = agent
        self._reward_normalizer = reward_normalizer
        self._distribution = parametric_action_distribution
        self._advantage_estimator = advantage_estimator
        self._policy_loss = policy_loss
        self._discount = discount_factor**frame_skip
        self._regularizer = regularizer
        self._max_abs_reward = max_abs_reward
        self._bootstrap_abandoned = handle_abandoned_episodes_properly
        self._huber_delta = huber_delta
        self._value_clip_eps = value_ppo_style_clip_eps
        self._baseline_cost = baseline_cost
        self._regularize_returns = include_regularization_in_returns
        self._reward_scaling = reward_scaling

    @property
    def network(self) -> Callable[..., Any]:
        """The network that is trained."""
        return self._agent

    def init(self) -> None:
        """Calls the `init()` of all submodules whose `init` takes no arguments: it creates their
        variables. Call it once, in the scope of the training strategy.
        """
        for module in self.submodules:
            init = getattr(module, "init", None)
            if callable(init) and not _parameters(init):
                init()

    def multipliers(self) -> list[tf.Variable]:
        """The variables of adjusted coefficients, whose gradients are clipped apart."""
        coefficients = [part for part in self.submodules if isinstance(part, Coefficient)]
        return variables.trainable_variables(coefficients)

    def mask(self, env_outputs: EnvOutput) -> tf.Tensor:
        """Which transitions of T + 1 steps are learned from, <float32>[time, batch].

        The last state of an abandoned episode has none: its action was never taken. If such states
        should count as terminal, those that `done` had already ended still have none: in vector
        environments that reset late, and in unrolls that are left out (`finite_unrolls`).

        Args:
          env_outputs: nest of [time + 1, batch, ...].
        """
        masked = env_outputs.abandoned[1:]
        if not self._bootstrap_abandoned:
            masked &= env_outputs.done[:-1]
        return 1.0 - tf.cast(masked, tf.float32)

    def compute_advantages(
        self,
        agent_state: Nest,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_outputs: Any,
        return_learner_outputs: bool = False,
        rewards: tf.Tensor | None = None,
    ) -> tuple[Any, ...]:
        """Value targets and advantages of a batch of unrolls; updates the reward normalizer.

        Args:
          agent_state: nest of [batch, ...], before the first step.
          prev_actions: nest of [time + 1, batch, ...].
          env_outputs: `EnvOutput` or any tuple of its five fields, [time + 1, batch, ...].
          agent_outputs: `AgentOutput` of [time + 1, batch, ...], recorded at inference; its
            `policy_logits` are the behaviour policy's.
          return_learner_outputs: whether to return them.
          rewards: <float32>[time + 1, batch] to learn from; None: those of `env_outputs`, which the
            network reads in any case.

        Returns:
          (normalized targets <float32>[time, batch], normalized advantages <float32>[time, batch]),
          both without gradient, and if asked for the network's `AgentOutput` of [time, batch, ...].
        """
        env_outputs = EnvOutput(*env_outputs)
        learned, _ = call_network(
            self._agent, prev_actions, env_outputs, agent_state, unroll=True, is_training=True
        )
        values = tf.stop_gradient(self._unnormalized(learned.baseline))
        mask = self.mask(env_outputs)
        learned = _neutral(_without_last(learned), mask)
        acted = _neutral(_without_last(agent_outputs), mask)
        done = env_outputs.done[1:]
        targets, advantages = self._advantage_estimator(
            values,
            self._rewards(env_outputs.reward if rewards is None else rewards, learned, acted, mask),
            done & (mask > 0),
            mask == 0,
            self._discount,
            *(tf.stop_gradient(p) for p in self._log_probs(learned, acted, mask)),
        )
        targets, advantages = self._normalized(targets, advantages, mask)
        if return_learner_outputs:
            return targets, advantages, learned
        return targets, advantages

    def __call__(
        self,
        agent_state: Nest,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_outputs: Any,
        normalized_targets: tf.Tensor | None = None,
        normalized_advantages: tf.Tensor | None = None,
        mask: tf.Tensor | None = None,
        rewards: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """The loss of a batch of unrolls, or of transitions whose advantages are known.

        The arguments are those of `compute_advantages`, whose results <float32>[time, batch] may be
        given as `normalized_targets` and `normalized_advantages`. The others are then without the
        last step, and `mask` <float32>[time, batch] is that of `self.mask`; None: all ones.

        Returns:
          <float32>[]. On one of several replicas, its share (`replicas.BatchMean`).
        """
        env_outputs = EnvOutput(*env_outputs)
        if normalized_targets is None:
            mask = self.mask(env_outputs)
            normalized_targets, normalized_advantages, learned = self.compute_advantages(
                agent_state, prev_actions, env_outputs, agent_outputs, True, rewards
            )
            acted = _neutral(_without_last(agent_outputs), mask)
        else:
            learned, _ = call_network(
                self._agent, prev_actions, env_outputs, agent_state, unroll=True, is_training=True
            )
            mask = tf.ones_like(normalized_targets) if mask is None else mask
            learned, acted = _neutral(learned, mask), _neutral(agent_outputs, mask)
        return self._loss(learned, acted, normalized_targets, normalized_advantages, mask)

    def _loss(
        self,
        learned: Any,
        acted: Any,
        targets: tf.Tensor,
        advantages: tf.Tensor | None,
        mask: tf.Tensor,
    ) -> tf.Tensor:
        """The loss <float32>[] of transitions: `AgentOutput`s, the rest <float32>[time, batch]."""
        assert self._policy_loss is not None
        policy_loss = _call_with_options(
            self._policy_loss,
            (advantages, *self._log_probs(learned, acted, mask)),
            actions=acted.action,
            target_logits=learned.policy_logits,
            behaviour_logits=acted.policy_logits,
            parametric_action_distribution=self._distribution,
            mask=mask,
        )
        loss = policy_loss + self._baseline_cost * self._value_loss(
            learned.baseline, acted.baseline, targets, mask
        )
        std = mean_std(self._distribution(learned.policy_logits))
        if std is not None:
            self.log("policy/std", replicas.BatchMean(mask)(std))
        if self._regularizer is not None:
            losses, adjustment = self._regularization(learned, acted, mask, with_logging=True)
            loss += replicas.BatchMean(mask)(losses) + adjustment
        return loss

    def _rewards(self, rewards: tf.Tensor, learned: Any, acted: Any, mask: tf.Tensor) -> tf.Tensor:
        """Rewards <float32>[time, batch] of the transitions, from those of T + 1 steps."""
        rewards = rewards[1:]
        if self._max_abs_reward:
            rewards = tf.clip_by_value(rewards, -self._max_abs_reward, self._max_abs_reward)
        rewards *= self._reward_scaling
        if self._regularizer is not None and self._regularize_returns:
            losses, _ = self._regularization(learned, acted, mask, with_logging=False)
            rewards -= tf.stop_gradient(losses)
        return rewards

    def _regularization(
        self, learned: Any, acted: Any, mask: tf.Tensor, with_logging: bool
    ) -> tuple[tf.Tensor, tf.Tensor]:
        assert self._regularizer is not None
        arguments = (
            self._distribution,
            learned.policy_logits,
            acted.policy_logits,
            acted.action,
        )
        return _call_with_options(
            self._regularizer, arguments, with_logging=with_logging, mask=mask
        )

    def _log_probs(self, learned: Any, acted: Any, mask: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Log probabilities <float32>[time, batch] of the actions taken, under policy and behaviour
        policy; 0 where masked, as those may be infinite.
        """
        policies = (
            self._distribution(learned.policy_logits),
            self._distribution(acted.policy_logits),
        )
        target, behaviour = (
            tf.where(mask > 0, policy.log_prob(acted.action), 0.0) for policy in policies
        )
        return target, behaviour

    def _unnormalized(self, baseline: tf.Tensor) -> tf.Tensor:
        """Values in units of the returns, from the network's baseline; <float32>[...] both."""
        normalizer = self._reward_normalizer
        if normalizer is None:
            return baseline
        return normalizer.unnormalize_prediction(normalizer.correct_prediction(baseline))

    def _normalized(
        self, targets: tf.Tensor, advantages: tf.Tensor, mask: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Updates the statistics with the targets and normalizes both; <float32>[time, batch]."""
        normalizer = self._reward_normalizer
        if normalizer is None:
            return targets, advantages
        # Statistics ignore values that are not finite.
        normalizer.update_normalization_statistics(tf.where(mask > 0, targets, math.nan))
        targets = normalizer.normalize_target(targets)
        advantages = normalizer.normalize_advantage(advantages)
        return tf.stop_gradient(targets), tf.stop_gradient(advantages)

    def _value_loss(
        self, baseline: tf.Tensor, acted_baseline: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor
    ) -> tf.Tensor:
        """Loss <float32>[] of the network's baseline against normalized targets.

        Args:
          baseline: <float32>[time, batch].
          acted_baseline: <float32>[time, batch], of the network that acted.
          targets: <float32>[time, batch].
          mask: <float32>[time, batch].
        """
        mean = replicas.BatchMean(mask)
        correct = (
            self._reward_normalizer.correct_prediction
            if self._reward_normalizer is not None
            else tf.identity
        )
        predictions = correct(baseline)
        losses = self._value_losses(predictions - targets)
        if self._value_clip_eps is not None:
            acted_predictions = tf.stop_gradient(correct(acted_baseline))
            change = predictions - acted_predictions
            clipped = tf.clip_by_value(change, -self._value_clip_eps, self._value_clip_eps)
            losses = tf.maximum(losses, self._value_losses(acted_predictions + clipped - targets))
        loss = mean(losses)
        self.log("losses/value", loss)
        self.log("value/prediction", mean(predictions))
        self.log("value/target", mean(targets))
        self.log("value/abs_error", mean(tf.abs(predictions - targets)))
        self.log("value/explained_variance", mean.explained_variance(predictions, targets))
        return loss

    def _value_losses(self, errors: tf.Tensor) -> tf.Tensor:
        """Loss of each error, <float32>[...]."""
        if self._huber_delta is None:
            return tf.square(errors)
        size = tf.abs(errors)
        quadratic = tf.minimum(size, self._huber_delta)
        return quadratic * (size - 0.5 * quadratic)


def _without_last(nest: Nest) -> Nest:
    """[time, batch, ...] of a nest of [time + 1, batch, ...]."""
    return tf.nest.map_structure(lambda t: None if t is None else t[:-1], nest)


def _neutral(output: Any, mask: tf.Tensor) -> Any:
    """`AgentOutput` with the parameters 0 where masked.

    For actions never taken, log probabilities and divergences may be infinite, and their gradients
    then NaN, even when multiplied by 0.
    """
    logits = output.policy_logits
    neutral = tf.where(mask[..., tf.newaxis] > 0, logits, tf.zeros_like(logits))
    return output._replace(policy_logits=neutral)


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Parameters that a call must give."""
    return [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    ]


def _call_with_options(part: Callable[..., Any], arguments: tuple[Any, ...], **options: Any) -> Any:
    """Calls `part` with those of `options` that it accepts."""
    parameters = inspect.signature(part).parameters
    if not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        options = {name: value for name, value in options.items() if name in parameters}
    return part(*arguments, **options)
