"""V-trace, IMPALA's off-policy corrected value targets and advantages.

Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures", https://arxiv.org/abs/1802.01561. Equation numbers below are the paper's.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from seed_rl.common.returns.scans import backward_linear_scan, check_shapes


class VTraceReturns(NamedTuple):
    """Results of V-trace.

    Attributes:
      vs: <float32>[time, batch, ...] value targets v_s.
      pg_advantages: <float32>[time, batch, ...] advantages, the weights of grad log pi(a_s | x_s).
    """

    vs: tf.Tensor
    pg_advantages: tf.Tensor


def from_importance_weights(
    target_action_log_probs: tf.Tensor,
    behaviour_action_log_probs: tf.Tensor,
    discounts: tf.Tensor,
    rewards: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
    clip_rho_threshold: float | None = 1.0,
    clip_pg_rho_threshold: float | None = 1.0,
    lambda_: float = 1.0,
    name: str = "vtrace_from_importance_weights",
) -> VTraceReturns:
    """Computes V-trace targets (eq. 1) and policy gradient advantages (section 4.2).

    Step s has the state x_s, the action a_s taken there, the reward r_s that followed and the
    discount gamma_s of what comes after, which is 0 where the episode ended.

    Args:
      target_action_log_probs: <float32>[time, batch, ...] log pi(a_s | x_s), the learner's policy.
      behaviour_action_log_probs: <float32>[time, batch, ...] log mu(a_s | x_s), the behaviour
        policy.
      discounts: <float32>[time, batch, ...].
      rewards: <float32>[time, batch, ...].
      values: <float32>[time, batch, ...] V(x_s).
      bootstrap_value: <float32>[batch, ...] V of the state after the last step.
      clip_rho_threshold: rho-bar, at which the weights of the temporal differences are clipped. It
        determines the policy whose values the targets converge to. None: no clipping.
      clip_pg_rho_threshold: clips the weights of the advantages. None: no clipping.
      lambda_: trades variance for bias, as in TD(lambda); c_i = lambda * min(1, rho_i) (remark 2).
      name: name scope of the operations.

    Returns:
      `VTraceReturns`; no gradient flows through either part.

    Raises:
      ValueError: the shapes do not match.
    """
    with tf.name_scope(name):
        # Named as in rlax: _tm1 belongs to the state acted in, _t to what followed.
        log_rho_tm1 = tf.cast(target_action_log_probs, tf.float32) - tf.cast(
            behaviour_action_log_probs, tf.float32
        )
        discount_t, r_t, v_tm1, bootstrap_value = (
            tf.cast(x, tf.float32) for x in (discounts, rewards, values, bootstrap_value)
        )
        steps = log_rho_tm1.shape
        why = f"as the action log probabilities {steps}"
        check_shapes(steps, why, discounts=discount_t, rewards=r_t, values=v_tm1)
        if steps.rank is not None:
            check_shapes(steps[1:], why, bootstrap_value=bootstrap_value)

        rho_tm1 = tf.exp(log_rho_tm1)
        c_tm1 = lambda_ * tf.minimum(1.0, rho_tm1)
        v_t = tf.concat([v_tm1[1:], bootstrap_value[tf.newaxis]], axis=0)
        delta_tm1 = _clip(rho_tm1, clip_rho_threshold) * (r_t + discount_t * v_t - v_tm1)
        # Remark 1: v_s - V(x_s) = delta_s + gamma_s c_s (v_{s+1} - V(x_{s+1})).
        target_tm1 = v_tm1 + backward_linear_scan(discount_t * c_tm1, delta_tm1)

        target_t = tf.concat([target_tm1[1:], bootstrap_value[tf.newaxis]], axis=0)
        pg_advantage_tm1 = _clip(rho_tm1, clip_pg_rho_threshold) * (
            r_t + discount_t * target_t - v_tm1
        )
        return VTraceReturns(tf.stop_gradient(target_tm1), tf.stop_gradient(pg_advantage_tm1))


def _clip(rho: tf.Tensor, threshold: float | None) -> tf.Tensor:
    return rho if threshold is None else tf.minimum(tf.cast(threshold, tf.float32), rho)
