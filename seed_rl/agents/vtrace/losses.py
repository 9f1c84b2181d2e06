"""The V-trace loss of a batch of unrolls.

Espeholt et al. 2018, section 4.2. Every term is a mean over the unmasked transitions of the batch,
so that costs mean the same for any batch size and unroll length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.vtrace.config import NO_SHAPING, SOFT, VTraceConfig
from seed_rl.common.distributions.base import Distribution, ParametricDistribution
from seed_rl.common.distributions.continuous import mean_std
from seed_rl.common.distributions.discrete import Categorical
from seed_rl.common.errors import UserError
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.learner import replicas
from seed_rl.common.learner.coefficients import (
    Coefficient,
    FixedCoefficient,
    LagrangeInequalityCoefficient,
)
from seed_rl.common.nest import Nest
from seed_rl.common.normalization.popart import PopArt
from seed_rl.common.normalization.running_statistics import EMAMeanStd
from seed_rl.common.returns import vtrace
from seed_rl.common.returns.transitions import transitions
from seed_rl.common.types import EnvOutput

_NUM_SAMPLES = 16  # Of the policy at each state, where a divergence has no closed form.


def shaped(rewards: tf.Tensor, shaping: str) -> tf.Tensor:
    """Rewards squashed for tasks that differ in scale; penalties count less.

    Args:
      rewards: <float32>[...], r.
      shaping: `OPTIMISTIC`: 0.3 min(tanh r, 0) + 5 max(tanh r, 0), the "optimistic asymmetric
        clipping" of Espeholt et al. 2018, appendix D. `SOFT`: 5 tanh(r/5), times 0.3 where
        negative, as in the code published with that paper; close to r for small positive rewards.
        `NO_SHAPING`: r.
    """
    if shaping == NO_SHAPING:
        return rewards
    width, penalty = (5.0, 1.5) if shaping == SOFT else (1.0, 0.3)
    squashed = tf.tanh(rewards / width)
    return penalty * tf.minimum(squashed, 0.0) + 5.0 * tf.maximum(squashed, 0.0)


def compute_loss(
    config: VTraceConfig,
    parametric_action_distribution: ParametricDistribution,
    network: Callable[..., Any],
    agent_state: Nest,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    agent_outputs: Any,
    entropy_cost: Coefficient,
    rewards: tf.Tensor | None = None,
    popart: PopArt | None = None,
    replay_ratio: int = 0,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """The loss of a batch of unrolls of T + 1 steps, T of which are trained on.

    Args:
      config: options.
      parametric_action_distribution: distribution parametrized by `policy_logits`.
      network: the one being trained, in either call form of `call_network`.
      agent_state: nest of [batch, ...], before the first step.
      prev_actions: nest of [time + 1, batch, ...].
      env_outputs: nest of [time + 1, batch, ...].
      agent_outputs: `AgentOutput` of [time + 1, batch, ...], recorded at inference; its
        `policy_logits` are the behaviour policy's.
      entropy_cost: weight of the entropy bonus, see `create_entropy_cost`.
      rewards: <float32>[time + 1, batch] to learn from; None: those of `env_outputs`, which the
        network reads in any case.
      popart: normalizes values; the value targets of this batch update its statistics. None: the
        network's baseline is the value.
      replay_ratio: replayed unrolls in the batch for each new one; the new ones come first. Entropy
        bonus and divergence penalty take the new ones alone.

    Returns:
      (loss <float32>[], metrics <float32>[] by name).
    """
    learned, _ = call_network(network, prev_actions, env_outputs, agent_state, True, True)
    if rewards is not None:
        env_outputs = env_outputs._replace(reward=rewards)
    env_outputs = env_outputs._replace(reward=shaped(env_outputs.reward, config.shaping))
    steps = transitions(
        env_outputs, config.discounting, config.reward_scaling, config.max_abs_reward
    )
    mean = of_new = replicas.BatchMean(steps.mask)
    if replay_ratio:
        num_new = steps.mask.shape[1] // (1 + replay_ratio)
        new = tf.range(steps.mask.shape[1]) < num_new
        of_new = replicas.BatchMean(steps.mask * tf.cast(new, tf.float32))
    a_tm1 = tf.nest.map_structure(lambda t: t[:-1], agent_outputs.action)
    pi_tm1 = parametric_action_distribution(learned.policy_logits[:-1])
    mu_tm1 = parametric_action_distribution(agent_outputs.policy_logits[:-1])
    target_log_probs, behaviour_log_probs = pi_tm1.log_prob(a_tm1), mu_tm1.log_prob(a_tm1)
    trusted, trusted_log_probs = steps.mask, target_log_probs
    if config.trust_region is not None:
        divergence = implied_divergence(pi_tm1, mu_tm1, config.max_importance_weight)
        within = divergence <= config.trust_region
        trusted *= tf.cast(within, tf.float32)
        # With importance weights of 0, these steps have no errors, and targets before them end
        # there.
        trusted_log_probs = tf.where(within, target_log_probs, -math.inf)
    values = learned.baseline
    if popart is not None:
        values = popart.unnormalize_prediction(popart.correct_prediction(values))
    v_tm1 = values[:-1]
    returns = vtrace.from_importance_weights(
        target_action_log_probs=trusted_log_probs,
        behaviour_action_log_probs=behaviour_log_probs,
        discounts=steps.discount_t,
        rewards=steps.bootstrapping_rewards(v_tm1),
        values=v_tm1,
        bootstrap_value=values[-1],
        clip_rho_threshold=config.max_importance_weight,
        clip_pg_rho_threshold=config.max_pg_importance_weight,
        lambda_=config.lambda_,
    )

    advantages, value_errors = returns.pg_advantages, returns.vs - v_tm1
    if popart is not None:
        advantages, value_errors = _normalized(popart, learned.baseline[:-1], returns, trusted)

    # An action that the policy now excludes has weight 0 and log probability -inf.
    policy_loss = -mean(tf.math.multiply_no_nan(target_log_probs, advantages))
    baseline_loss = 0.5 * mean(tf.square(value_errors))
    entropy = of_new(pi_tm1.entropy())
    kl = of_new(mu_tm1.kl_divergence(pi_tm1))

    loss = (
        policy_loss
        + config.baseline_cost * baseline_loss
        + entropy_cost.scale_loss(-entropy)
        + entropy_cost.adjustment_loss(-entropy)
    )
    if config.kl_cost:  # The divergence may be infinite, and 0 times that is NaN.
        loss += config.kl_cost * kl
    rhos = tf.exp(target_log_probs - behaviour_log_probs)
    metrics = {
        "losses/policy": policy_loss,
        "losses/baseline": baseline_loss,
        "losses/kl": kl,
        "policy/entropy": entropy,
        "policy/entropy_cost": entropy_cost(),
        "policy/importance_weight": mean(rhos),
        "policy/importance_weight_clipped": mean(
            tf.cast(rhos > config.max_importance_weight, tf.float32)
        ),
        "value/baseline": mean(v_tm1),
        "value/target": mean(returns.vs),
        "value/abs_error": mean(tf.abs(returns.vs - v_tm1)),
        "value/explained_variance": mean.explained_variance(v_tm1, returns.vs),
        "policy/advantage": mean(returns.pg_advantages),
    }
    std = mean_std(pi_tm1)
    if std is not None:
        metrics["policy/std"] = mean(std)
    if config.trust_region is not None:
        metrics["policy/trusted"] = mean(trusted)
    return loss, {name: tf.stop_gradient(value) for name, value in metrics.items()}


def implied_divergence(pi: Distribution, mu: Distribution, max_weight: float) -> tf.Tensor:
    """KL(pi || pi_mu) <float32>[time, batch] of the policy whose values V-trace estimates.

    Actions of mu, with importance weights clipped at rho-bar, are those of pi_mu, in proportion to
    min(rho-bar mu, pi) (Espeholt et al. 2018, section 4.1; Schmitt et al. 2019, section 4.3). Exact
    for one discrete choice; for other actions, an estimate from samples of pi.

    Args:
      pi: the learner's policy, [time, batch].
      mu: the behaviour policy, of the same class.
      max_weight: rho-bar.

    Returns:
      <float32>[time, batch]; infinite or NaN where pi allows an action that mu never takes. No
      gradient flows.
    """
    if type(pi) is Categorical and type(mu) is Categorical:  # Subclasses have several choices.
        log_pi, log_mu = tf.nn.log_softmax(pi.logits), tf.nn.log_softmax(mu.logits)
        probabilities = tf.exp(log_pi)
    else:
        samples = [pi.sample_and_log_prob(differentiable=False) for _ in range(_NUM_SAMPLES)]
        log_pi = tf.stack([log_prob for _, log_prob in samples], axis=-1)
        log_mu = tf.stack([mu.log_prob(action) for action, _ in samples], axis=-1)
        probabilities = tf.fill(tf.shape(log_pi), 1.0 / _NUM_SAMPLES)
    log_share = tf.minimum(log_mu + tf.math.log(max_weight) - log_pi, 0.0)

    def expectation(values: tf.Tensor) -> tf.Tensor:
        possible = tf.where(probabilities > 0, values, 0.0)
        return tf.reduce_sum(probabilities * possible, axis=-1)

    divergence = tf.math.log(expectation(tf.exp(log_share))) - expectation(log_share)
    return tf.stop_gradient(divergence)


def create_entropy_cost(config: VTraceConfig) -> Coefficient:
    """The weight of the entropy bonus: fixed, or a multiplier that keeps the entropy at a target.

    Raises:
      UserError: the weight is to be adjusted, but starts at 0.
    """
    target, cost = config.target_entropy, config.entropy_cost
    if target is None or config.entropy_cost_adjustment_speed == 0:
        return FixedCoefficient(cost)
    if cost == 0:
        raise UserError(
            "--target_entropy needs an initial --entropy_cost above 0. For no entropy bonus, add "
            "--entropy_cost_adjustment_speed=0."
        )
    return LagrangeInequalityCoefficient(
        threshold=-target,  # For minus the entropy.
        init_alpha=cost,
        alpha_range=(1e-8, 1e3),
        adjustment_speed=config.entropy_cost_adjustment_speed,
    )


def make_popart(config: VTraceConfig) -> PopArt:
    """Creates PopArt with its variables, which must be trained and checkpointed."""
    # The bound of Hessel et al. 2018, "Multi-task deep reinforcement learning with PopArt".
    popart = PopArt(EMAMeanStd(config.popart_beta, std_min_value=1e-4))
    popart.init()
    return popart


def _normalized(
    popart: PopArt, baseline: tf.Tensor, returns: vtrace.VTraceReturns, mask: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Updates the statistics; returns advantages and value errors <float32>[time, batch] in units
    of the new standard deviation.
    """
    # PopArt ignores values that are not finite: the targets of steps that were not made.
    popart.update_normalization_statistics(tf.where(mask > 0, returns.vs, math.nan))
    errors = popart.normalize_target(returns.vs) - popart.correct_prediction(baseline)
    return popart.normalize_advantage(returns.pg_advantages), errors
