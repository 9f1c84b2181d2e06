"""Advantage estimators: value targets and advantages of unrolls that may be cut anywhere.

All take, for T steps of B environments,

    values                       <float32>[T + 1, B], V of each state and of the one after the last
    rewards                      <float32>[T, B], of the action at each step
    done_terminated              <bool>[T, B], the episode ended after this step
    done_abandoned               <bool>[T, B], this step was not made: the episode was truncated in
                                 its state, and its action ignored
    discount_factor              <float32>[], or [T, B]
    target_action_log_probs      <float32>[T, B], log probability by the learner's policy
    behaviour_action_log_probs   <float32>[T, B], by the policy that acted

and return (value targets, advantages), <float32>[T, B] each, without gradient. After a termination
the value is zero. An abandoned step has the advantage zero and its own value as target. Neither
passes later rewards or values back to earlier steps. `done_abandoned` wins where both are true.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from seed_rl.common.returns.scans import backward_linear_scan, check_shapes


def vtrace(
    values: tf.Tensor,
    rewards: tf.Tensor,
    done_terminated: tf.Tensor,
    done_abandoned: tf.Tensor,
    discount_factor: float | tf.Tensor,
    target_action_log_probs: tf.Tensor,
    behaviour_action_log_probs: tf.Tensor,
    lambda_: float = 1.0,
    max_importance_weight: float | None = 1.0,
    name: str = "vtrace",
) -> tuple[tf.Tensor, tf.Tensor]:
    """V-trace (Espeholt et al. 2018) with advantages that are not weighted.

    With the weights rho = min(max_importance_weight, pi / mu) and temporal differences delta:

        acc_t = rho_t (delta_t + gamma lambda acc_{t + 1})
        target_t = V_t + acc_t
        advantage_t = delta_t + gamma lambda acc_{t + 1}

    The targets are those of `returns.vtrace` if the weights are clipped at 1. Its advantages are
    weighted by rho, and bootstrap from the next target without lambda: they agree on-policy for
    lambda = 1. Here the policy loss chooses the weights.

    `lambda_` is 0 for one-step targets, 1 for full returns; `max_importance_weight` None: no
    clipping; `name` is the operations' scope. For the rest, see the module.

    Raises:
      ValueError: the shapes do not match.
    """
    with tf.name_scope(name):
        log_probs = (target_action_log_probs, behaviour_action_log_probs)
        target, behaviour = (tf.cast(p, tf.float32) for p in log_probs)
        steps = _Steps(values, rewards, done_terminated, done_abandoned, discount_factor)
        steps.check(target_action_log_probs=target, behaviour_action_log_probs=behaviour)
        # The ignored action may have any probability, and infinity times zero is NaN.
        rho = tf.exp(tf.where(steps.abandoned, 0.0, target - behaviour))
        if max_importance_weight is not None:
            rho = tf.minimum(rho, max_importance_weight)
        delta = steps.temporal_differences()
        decay = tf.where(steps.abandoned, 0.0, steps.discount * lambda_)
        acc = backward_linear_scan(rho * decay, rho * delta)
        next_acc = tf.concat([acc[1:], tf.zeros_like(acc[:1])], axis=0)
        targets, advantages = steps.values[:-1] + acc, delta + decay * next_acc
        return tf.stop_gradient(targets), tf.stop_gradient(advantages)


def gae(
    values: tf.Tensor,
    rewards: tf.Tensor,
    done_terminated: tf.Tensor,
    done_abandoned: tf.Tensor,
    discount_factor: float | tf.Tensor,
    target_action_log_probs: tf.Tensor | None = None,
    behaviour_action_log_probs: tf.Tensor | None = None,
    lambda_: float = 1.0,
    name: str = "gae",
) -> tuple[tf.Tensor, tf.Tensor]:
    """Generalized advantage estimation (Schulman et al. 2016): `vtrace` between equal policies.

    The log probabilities are not used; `lambda_` trades variance for bias. For the rest, see the
    module.

    Raises:
      ValueError: the shapes do not match.
    """
    del target_action_log_probs, behaviour_action_log_probs
    same = tf.zeros_like(rewards, tf.float32)
    return vtrace(
        values,
        rewards,
        done_terminated,
        done_abandoned,
        discount_factor,
        same,
        same,
        lambda_=lambda_,
        name=name,
    )


class AdvantageEstimator(tf.Module):
    """An estimator, called as the module says."""

    def __call__(
        self,
        values: tf.Tensor,
        rewards: tf.Tensor,
        done_terminated: tf.Tensor,
        done_abandoned: tf.Tensor,
        discount_factor: float | tf.Tensor,
        target_action_log_probs: tf.Tensor | None = None,
        behaviour_action_log_probs: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """(value targets, advantages), <float32>[T, B]."""
        raise NotImplementedError


class GAE(AdvantageEstimator):
    """Generalized advantage estimation, see `gae`."""

    def __init__(self, lambda_: float, name: str = "gam"):
        """`lambda_` trades variance for bias."""
        super().__init__(name=name)
        self.lambda_ = lambda_

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return gae(*args, **{"lambda_": self.lambda_, **kwargs})


class VTrace(AdvantageEstimator):
    """V-trace, see `vtrace`."""

    def __init__(
        self, lambda_: float, max_importance_weight: float | None = 1.0, name: str = "vtrace"
    ):
        """See `vtrace` for the arguments."""
        super().__init__(name=name)
        self.lambda_ = lambda_
        self.max_importance_weight = max_importance_weight

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[tf.Tensor, tf.Tensor]:
        own = {"lambda_": self.lambda_, "max_importance_weight": self.max_importance_weight}
        return vtrace(*args, **{**own, **kwargs})


class NStep(AdvantageEstimator):
    """N-step returns, minus the value for the advantage, without correction for the policy.

    A return bootstraps from the state n steps ahead, or from the last state before that: the end of
    the unroll counts as an abandonment.
    """

    def __init__(self, n: int, name: str = "nstep2"):
        """Looks `n` steps ahead.

        Raises:
          ValueError: `n` is below 1.
        """
        if n < 1:
            raise ValueError(f"n-step returns need n of at least 1, got {n}.")
        super().__init__(name=name)
        self.n = n

    def __call__(
        self,
        values: tf.Tensor,
        rewards: tf.Tensor,
        done_terminated: tf.Tensor,
        done_abandoned: tf.Tensor,
        discount_factor: float | tf.Tensor,
        target_action_log_probs: tf.Tensor | None = None,
        behaviour_action_log_probs: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        del target_action_log_probs, behaviour_action_log_probs
        steps = _Steps(values, rewards, done_terminated, done_abandoned, discount_factor)
        steps.check()
        last = steps.values[-1:]
        num_steps = steps.rewards.shape[0]
        targets = steps.values[:-1]
        for _ in range(self.n if num_steps is None else min(self.n, num_steps)):
            following = tf.concat([targets[1:], last], axis=0)
            targets = tf.where(
                steps.abandoned, steps.values[:-1], steps.rewards + steps.discount * following
            )
        return tf.stop_gradient(targets), tf.stop_gradient(targets - steps.values[:-1])


class _Steps:
    """The arguments of an estimator, as float32; `discount` <float32>[T, B] is 0 at the end."""

    def __init__(
        self,
        values: tf.Tensor,
        rewards: tf.Tensor,
        done_terminated: tf.Tensor,
        done_abandoned: tf.Tensor,
        discount_factor: float | tf.Tensor,
    ):
        self.values = tf.cast(values, tf.float32)
        self.rewards = tf.cast(rewards, tf.float32)
        self.terminated = tf.cast(done_terminated, tf.bool)
        self.abandoned = tf.cast(done_abandoned, tf.bool)
        self.discount = tf.where(self.terminated, 0.0, tf.cast(discount_factor, tf.float32))

    def temporal_differences(self) -> tf.Tensor:
        """<float32>[T, B]."""
        difference = self.rewards + self.discount * self.values[1:] - self.values[:-1]
        return tf.where(self.abandoned, 0.0, difference)

    def check(self, **log_probs: tf.Tensor) -> None:
        """Refuses mismatches."""
        check_shapes(
            self.values[:-1].shape,
            f"one step less than values {self.values.shape}",
            rewards=self.rewards,
            done_terminated=self.terminated,
            done_abandoned=self.abandoned,
            discount_factor=self.discount,
            **log_probs,
        )
