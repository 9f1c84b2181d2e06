"""V-trace, the off-policy corrected value target and advantage of IMPALA.

Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
Architectures", https://arxiv.org/abs/1802.01561. Equation numbers below are the paper's.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from seed_rl.common.returns.scans import backward_linear_scan


class VTraceReturns(NamedTuple):
    """What V-trace computes.

    Attributes:
      vs: <float32>[time, batch, ...] value targets v_s.
      pg_advantages: <float32>[time, batch, ...] weights of grad log pi(a_s | x_s).
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
    """V-trace targets (eq. 1) and policy gradient advantages (section 4.2).

    Step s has the state x_s, the action a_s taken there, the reward r_s that followed and the
    discount gamma_s of what comes after, which is 0 where the episode ended.

    Args:
      target_action_log_probs: <float32>[time, batch, ...] log pi(a_s | x_s), the learner's policy.
      behaviour_action_log_probs: <float32>[time, batch, ...] log mu(a_s | x_s), the policy acted.
      discounts: <float32>[time, batch, ...].
      rewards: <float32>[time, batch, ...].
      values: <float32>[time, batch, ...] V(x_s).
      bootstrap_value: <float32>[batch, ...] V of the state after the last step.
      clip_rho_threshold: rho-bar, at which the weights in the temporal differences are clipped.
        It decides which policy's value the targets converge to. None: no clipping.
      clip_pg_rho_threshold: the same for the weight of the advantages. None: no clipping.
      lambda_: trades variance for bias, as in TD(lambda); c_i = lambda * min(1, rho_i) (remark 2).
      name: of the scope the operations are made in.

    Returns:
      `VTraceReturns`; no gradient flows through either part.

    Raises:
      ValueError: if shapes do not fit together.
    """
    with tf.name_scope(name):
        log_rhos = tf.cast(target_action_log_probs, tf.float32) - tf.cast(
            behaviour_action_log_probs, tf.float32
        )
        discounts, rewards, values, bootstrap_value = (
            tf.cast(x, tf.float32) for x in (discounts, rewards, values, bootstrap_value)
        )
        _check_shapes(log_rhos, discounts, rewards, values, bootstrap_value)

        rhos = tf.exp(log_rhos)
        clipped_rhos = _clip(rhos, clip_rho_threshold)
        cs = lambda_ * tf.minimum(1.0, rhos)
        next_values = tf.concat([values[1:], bootstrap_value[tf.newaxis]], axis=0)
        deltas = clipped_rhos * (rewards + discounts * next_values - values)
        # Remark 1: v_s - V(x_s) = delta_s + gamma_s c_s (v_{s+1} - V(x_{s+1})).
        vs = values + backward_linear_scan(discounts * cs, deltas)

        next_vs = tf.concat([vs[1:], bootstrap_value[tf.newaxis]], axis=0)
        pg_advantages = _clip(rhos, clip_pg_rho_threshold) * (
            rewards + discounts * next_vs - values
        )
        return VTraceReturns(tf.stop_gradient(vs), tf.stop_gradient(pg_advantages))


def _clip(rhos: tf.Tensor, threshold: float | None) -> tf.Tensor:
    return rhos if threshold is None else tf.minimum(tf.cast(threshold, tf.float32), rhos)


def _check_shapes(
    log_rhos: tf.Tensor,
    discounts: tf.Tensor,
    rewards: tf.Tensor,
    values: tf.Tensor,
    bootstrap_value: tf.Tensor,
) -> None:
    """A reward of [time, batch, 1] would broadcast to nonsense without a word; refuse it."""
    tensors = {
        "discounts": discounts,
        "rewards": rewards,
        "values": values,
        "bootstrap_value with time": bootstrap_value[tf.newaxis],
    }
    for label, tensor in tensors.items():
        expected = log_rhos.shape
        if expected.rank is not None and "bootstrap" in label:
            expected = tf.TensorShape([1]).concatenate(expected[1:])
        if not tensor.shape.is_compatible_with(expected):
            raise ValueError(
                f"V-trace: {label} must have the shape of the action log probabilities, "
                f"{expected}, but has {tensor.shape}."
            )
