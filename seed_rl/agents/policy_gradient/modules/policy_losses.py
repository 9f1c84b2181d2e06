"""Policy losses: policy gradient, V-trace, PPO, AWR, V-MPO, repeating of good actions, cloning.

All are one loss with different options (Andrychowicz et al. 2020, appendix B.3): log probabilities
of the actions taken, weighted by a function of their advantages. Weights have no gradient.

With several replicas, advantages are normalized over the whole batch. The median, and the softmax
of V-MPO, are those of each replica's part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import gin
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules.logging_module import LoggingModule
from seed_rl.common.distributions.base import Actions, ParametricDistribution
from seed_rl.common.learner import replicas
from seed_rl.common.learner.coefficients import (
    Coefficient,
    FixedCoefficient,
    LagrangeInequalityCoefficient,
)

_MAX_LOG_RATIO = 20.0  # Keeps ratios, and so gradients, finite.
_NEVER = -1e30  # Advantage of actions that must get no weight from any transformation.


@gin.configurable
class AdvantagePreprocessor(tf.Module, LoggingModule):
    """Normalizes, filters and shifts advantages, in this order."""

    def __init__(
        self,
        normalize: bool = False,
        only_positive: bool = False,
        only_top_half: bool = False,
        offset: float | None = None,
    ):
        """Creates a preprocessor, by default one that changes nothing.

        Args:
          normalize: to mean 0 and standard deviation 1 over the batch.
          only_positive: whether to drop advantages of 0 and less.
          only_top_half: whether to drop advantages below the median.
          offset: added to the result; None for 0.
        """
        super().__init__()
        self._normalize = normalize
        self._only_positive = only_positive
        self._only_top_half = only_top_half
        self._offset = offset

    def __call__(
        self, advantages: tf.Tensor, mask: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Processes the advantages of a batch.

        Args:
          advantages: <float32>[...].
          mask: <float32>[...] 0 for elements that do not belong to the batch; None: all do.

        Returns:
          (advantages <float32>[...], 0 where dropped, mask <float32>[...] of those kept).
        """
        advantages = tf.convert_to_tensor(advantages)
        mask = tf.ones_like(advantages) if mask is None else mask
        mean = replicas.BatchMean(mask)
        if self._normalize:
            advantages -= mean.everywhere(advantages)
            deviation = tf.sqrt(mean.everywhere(tf.square(advantages)))
            advantages /= deviation + 1e-8
        kept = mask > 0
        if self._only_top_half:
            kept &= advantages >= _median(advantages, mask)
        if self._only_positive:
            kept &= advantages > 0
        if self._offset is not None:
            advantages += self._offset
        self.log("advantages/kept", mean(tf.cast(kept, tf.float32)))
        return tf.where(kept, advantages, 0.0), tf.cast(kept, tf.float32)


@gin.configurable
class GeneralizedAdvantagePolicyLoss(tf.Module, LoggingModule):
    """The policy loss that has all others as special cases."""

    def __init__(
        self,
        advantage_preprocessor: Callable[..., tuple[tf.Tensor, tf.Tensor]] | None = None,
        use_importance_weights: bool = False,
        max_importance_weight: float | None = None,
        ppo_epsilon: float | None = None,
        max_advantage: float | None = None,
        advantage_transformation: Callable[[tf.Tensor], tf.Tensor] | None = None,
        temperature: Coefficient | None = None,
    ):
        """Creates a loss, by default the plain policy gradient.

        Args:
          advantage_preprocessor: an `AdvantagePreprocessor`; None: advantages as they are.
          use_importance_weights: whether to weight actions by the ratio of their probabilities
            under the target and the behaviour policy.
          max_importance_weight: largest such weight; None: no limit.
          ppo_epsilon: actions whose ratio has left [1 / (1 + epsilon), 1 + epsilon] in the
            direction of their advantage have weight 0; None: no action has.
          max_advantage: advantages (after division by the temperature) are clipped to at most this.
          advantage_transformation: maps advantages <float32>[...] to weights, such as `tf.exp`.
          temperature: divides advantages before the transformation; None for 1.

        Raises:
          ValueError: a maximum or a temperature is given without what it applies to.
        """
        super().__init__()
        if max_importance_weight is not None and not use_importance_weights:
            raise ValueError("max_importance_weight needs use_importance_weights=True.")
        if temperature is not None and advantage_transformation is None:
            raise ValueError("temperature needs an advantage_transformation, such as @tf.exp.")
        self._preprocessor = advantage_preprocessor or AdvantagePreprocessor()
        self._use_importance_weights = use_importance_weights
        self._max_importance_weight = max_importance_weight
        self._ppo_epsilon = ppo_epsilon
        self._max_advantage = max_advantage
        self._transformation = advantage_transformation
        self._temperature = temperature

    def __call__(
        self,
        advantages: tf.Tensor,
        target_action_log_probs: tf.Tensor,
        behaviour_action_log_probs: tf.Tensor,
        actions: Actions = None,
        target_logits: tf.Tensor | None = None,
        behaviour_logits: tf.Tensor | None = None,
        parametric_action_distribution: ParametricDistribution | None = None,
        mask: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """The loss of a batch of actions; for the arguments, see `PolicyLoss`.

        Actions, logits and distribution are not used. Without a mask, all actions were taken.

        Returns:
          <float32>[], a mean over the actions taken. On one of several replicas, its share of it
          (`replicas.BatchMean`).
        """
        del actions, target_logits, behaviour_logits, parametric_action_distribution
        mask = tf.ones_like(advantages) if mask is None else mask
        mean = replicas.BatchMean(mask)
        self.log("advantages/mean", mean(advantages))
        self.log("advantages/abs", mean(tf.abs(advantages)))
        advantages, kept = self._preprocessor(tf.stop_gradient(advantages), mask)
        adjustment = tf.constant(0.0)
        if self._temperature is not None:
            advantages /= tf.stop_gradient(self._temperature())
        if self._max_advantage is not None:
            advantages = tf.minimum(advantages, self._max_advantage)
        if self._transformation is not None:
            if self._temperature is not None:
                adjustment = self._adjustment_loss(advantages, kept)
            advantages = tf.where(kept > 0, advantages, _NEVER)
            advantages = tf.where(kept > 0, self._transformation(advantages), 0.0)
        weights = advantages * self._importance_weights(
            advantages, target_action_log_probs - behaviour_action_log_probs, mean
        )
        # Actions never taken must not reach the gradient, whatever their values.
        weights = tf.stop_gradient(tf.where(mask > 0, weights, 0.0))
        # An action that the policy now excludes has weight 0 and log probability -inf.
        loss = -mean(tf.math.multiply_no_nan(target_action_log_probs, weights))
        self.log("losses/policy", loss)
        return loss + adjustment

    def _adjustment_loss(self, scaled: tf.Tensor, kept: tf.Tensor) -> tf.Tensor:
        """Moves the temperature towards its bound on the KL of the weights.

        The bound of Song et al. 2020 (V-MPO), equation 4: the derivative of their temperature loss
        with respect to the temperature is the bound minus the KL divergence of the softmax weights
        from uniform ones.

        Args:
          scaled: <float32>[...] advantages divided by the temperature.
          kept: <float32>[...] 0 where an action was dropped.
        """
        scaled = tf.where(kept > 0, scaled, _NEVER)
        log_sum = tf.reduce_logsumexp(scaled)
        weights = kept * tf.exp(scaled - log_sum)
        count = tf.reduce_sum(kept)
        kl = tf.reduce_sum(weights * scaled) - log_sum + tf.math.log(tf.maximum(count, 1.0))
        kl = tf.where(count > 0, kl, 0.0)
        assert self._temperature is not None
        self.log("policy/temperature", self._temperature())
        self.log("policy/temperature_kl", kl)
        return self._temperature.adjustment_loss(kl)

    def _importance_weights(
        self, advantages: tf.Tensor, log_ratios: tf.Tensor, mean: replicas.BatchMean
    ) -> tf.Tensor:
        """Factors <float32>[...] of the advantages."""
        ratios = tf.exp(tf.minimum(log_ratios, _MAX_LOG_RATIO))
        self.log("policy/importance_weight", mean(ratios))
        factors = tf.ones_like(advantages)
        if self._use_importance_weights:
            factors = ratios
            if self._max_importance_weight is not None:
                factors = tf.minimum(ratios, self._max_importance_weight)
        if self._ppo_epsilon is not None:
            bound = math.log(1.0 + self._ppo_epsilon)
            left = tf.sign(advantages) * log_ratios > bound
            self.log("policy/ppo_clipped", mean(tf.cast(left, tf.float32)))
            factors = tf.where(left, 0.0, factors)
        return factors


def _median(values: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The (upper) median <float32>[] of the unmasked `values` <float32>[...]."""
    candidates = tf.where(mask > 0, values, values.dtype.min)
    descending = tf.sort(tf.reshape(candidates, [-1]), direction="DESCENDING")
    count = tf.cast(tf.reduce_sum(mask), tf.int32)
    return tf.gather(descending, tf.maximum((count + 1) // 2 - 1, 0))


@gin.configurable
def pg() -> GeneralizedAdvantagePolicyLoss:
    """The policy gradient (REINFORCE with a baseline), without off-policy correction."""
    return GeneralizedAdvantagePolicyLoss()


@gin.configurable
def vtrace(max_importance_weight: float | None = 1.0) -> GeneralizedAdvantagePolicyLoss:
    """The policy gradient with clipped importance weights (Espeholt et al. 2018)."""
    return GeneralizedAdvantagePolicyLoss(
        use_importance_weights=True, max_importance_weight=max_importance_weight
    )


@gin.configurable
def ppo(
    epsilon: float, normalize_advantages: bool = False, advantage_offset: float | None = None
) -> GeneralizedAdvantagePolicyLoss:
    """PPO (Schulman et al. 2017).

    Its gradient is that of the clipped surrogate objective, with the ratio clipped to
    [1 / (1 + epsilon), 1 + epsilon]; its value is not.

    Args:
      epsilon: bound of the probability ratio.
      normalize_advantages: whether to normalize them over each minibatch.
      advantage_offset: added to advantages.
    """
    return GeneralizedAdvantagePolicyLoss(
        AdvantagePreprocessor(normalize=normalize_advantages, offset=advantage_offset),
        use_importance_weights=True,
        ppo_epsilon=epsilon,
    )


@gin.configurable
def awr(beta: float, w_max: float) -> GeneralizedAdvantagePolicyLoss:
    """Advantage-weighted regression (Peng et al. 2019): weights min(exp(advantage / beta), w_max).

    Args:
      beta: temperature.
      w_max: largest weight.
    """
    return GeneralizedAdvantagePolicyLoss(
        max_advantage=math.log(w_max),
        advantage_transformation=tf.exp,
        temperature=FixedCoefficient(beta),
    )


@gin.configurable
def bc_logp() -> GeneralizedAdvantagePolicyLoss:
    """Behavioural cloning: log likelihood of all actions, regardless of their advantages."""
    return GeneralizedAdvantagePolicyLoss(advantage_transformation=tf.ones_like)


@gin.configurable
def softmax_all_dims(t: tf.Tensor) -> tf.Tensor:
    """Softmax <float32>[...] over all elements of `t` <float32>[...] together."""
    return tf.reshape(tf.nn.softmax(tf.reshape(t, [-1])), tf.shape(t))


@gin.configurable
def vmpo(e_n: float) -> GeneralizedAdvantagePolicyLoss:
    """V-MPO (Song et al. 2020): softmax weights of the better half, with adjusted temperature.

    The constraint on the policy's change is a regularizer (`KLPolicyRegularizer`) of its own. The
    weights sum to 1 and the loss is a mean, so it is small: 1 / (size of the minibatch) of the
    paper's sum.

    Args:
      e_n: bound of the weights' KL divergence from uniform ones.
    """
    return GeneralizedAdvantagePolicyLoss(
        AdvantagePreprocessor(only_top_half=True),
        advantage_transformation=softmax_all_dims,
        temperature=LagrangeInequalityCoefficient(e_n, adjustment_speed=10.0),
    )


@gin.configurable
def repeat_positive_advantages() -> GeneralizedAdvantagePolicyLoss:
    """Log likelihood of the actions whose advantage is not negative; others are ignored."""
    return awr(beta=1e-6, w_max=1.0)
