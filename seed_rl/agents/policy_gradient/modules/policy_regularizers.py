"""Regularizers of the policy: entropy, and divergences from other policies."""

from __future__ import annotations

import math
from collections.abc import Callable

import gin
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules.logging_module import LoggingModule
from seed_rl.common.distributions.base import Actions, Distribution, ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.learner import replicas
from seed_rl.common.learner.coefficients import Coefficient, FixedCoefficient

_QUANTITIES: dict[str, Callable[[Distribution, Distribution, Distribution], tf.Tensor]] = {
    "kl_pi_mu": lambda pi, mu, ref: pi.kl_divergence(mu),
    "kl_mu_pi": lambda pi, mu, ref: mu.kl_divergence(pi),
    "kl_ref_pi": lambda pi, mu, ref: ref.kl_divergence(pi),
    "entropy": lambda pi, mu, ref: -pi.entropy(),
}


@gin.configurable
class KLPolicyRegularizer(tf.Module, LoggingModule):
    """Sum of penalties, as costs or as constraints (Andrychowicz et al. 2020, appendix B.6)."""

    def __init__(self, name: str = "policy_regularizer", **coefficients: float | Coefficient):
        """Creates a regularizer.

        Args:
          name: of the module.
          **coefficients: weights by penalty, numbers or `Coefficient`s:
            kl_pi_mu: KL(policy || behaviour policy).
            kl_mu_pi: KL(behaviour policy || policy).
            kl_ref_pi: KL(reference || policy); the reference is the distribution whose parameters
              are all 0, except for masked actions.
            entropy: the negated entropy of the policy. A constraint `entropy > h` is
              `LagrangeInequalityCoefficient(threshold=-h)`.

        Raises:
          UserError: an unknown penalty.
        """
        super().__init__(name=name)
        unknown = sorted(set(coefficients) - set(_QUANTITIES))
        if unknown:
            raise UserError(
                f"KLPolicyRegularizer has no coefficient {', '.join(unknown)}; it has "
                f"{', '.join(_QUANTITIES)}."
            )
        self._coefficients = {
            key: value if isinstance(value, Coefficient) else FixedCoefficient(value)
            for key, value in coefficients.items()
        }
        # A divergence may be infinite, and 0 times that is NaN: these are only logged.
        self._without_weight = frozenset(key for key, value in coefficients.items() if value == 0)

    def __call__(
        self,
        parametric_action_distribution: ParametricDistribution,
        pi_logits: tf.Tensor,
        mu_logits: tf.Tensor,
        actions: Actions = None,
        with_logging: bool = True,
        mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The penalties of a batch of steps.

        Args:
          parametric_action_distribution: of the logits.
          pi_logits: <float32>[time, batch, params] of the policy that is trained.
          mu_logits: <float32>[time, batch, params] of the policy that acted.
          actions: unused.
          with_logging: whether to log values and weights.
          mask: <float32>[time, batch] 0 for steps that do not count; None: all do.

        Returns:
          (weighted penalties <float32>[time, batch], loss <float32>[] that adjusts the weights).
        """
        del actions
        forbidden = pi_logits == -math.inf  # Because of an action mask.
        ref_logits = tf.where(forbidden, pi_logits, tf.zeros_like(pi_logits))
        pi, mu, ref = map(parametric_action_distribution, (pi_logits, mu_logits, ref_logits))
        shape = tf.shape(pi_logits)[:-1]
        mean = replicas.BatchMean(tf.ones(shape) if mask is None else mask)
        penalty, adjustment = tf.zeros(shape), tf.constant(0.0)
        for key, coefficient in self._coefficients.items():
            values = _QUANTITIES[key](pi, mu, ref)
            if mask is not None:
                values = tf.where(mask > 0, values, 0.0)
            average = mean(values)
            if key not in self._without_weight:
                penalty += coefficient.scale_loss(values)
                adjustment += coefficient.adjustment_loss(average)
            if with_logging:
                self.log(f"policy/{key}", -average if key == "entropy" else average)
                if not isinstance(coefficient, FixedCoefficient):
                    self.log(f"policy/{key}_coefficient", coefficient())
        return penalty, adjustment
