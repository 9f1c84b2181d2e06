"""The computations of SAC as pure functions (Haarnoja et al. 2018: arXiv 1801.01290, 1812.05905).

Below, T is the number of steps trained on. A batch has T + 1 steps: the last one only provides the
bootstrap value.

Actor, critics, temperature and, where it is needed, V each have a loss of their own, and one
optimizer minimizes the sum. `tf.stop_gradient` keeps them apart: no loss has a gradient with
respect to the variables of another.

Critics that predict one number are clipped double Q (Fujimoto et al. 2018): the smallest counts,
and the loss is a squared error. Critics that predict quantiles of the return are TQC (Kuznetsov et
al. 2020, arXiv 2005.04269): the largest of all critics' quantiles are dropped from targets. Their
values `q` are <float32>[time, batch, critics], or [time, batch, critics, quantiles].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.sac.config import BOOTSTRAP_Q, SACConfig
from seed_rl.common.acting.action_masks import KEY
from seed_rl.common.acting.spaces import leaf_spaces
from seed_rl.common.distributions.base import Actions, ParametricDistribution
from seed_rl.common.distributions.continuous import mean_std
from seed_rl.common.learner import replicas
from seed_rl.common.learner.coefficients import (
    Coefficient,
    FixedCoefficient,
    LagrangeInequalityCoefficient,
)
from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.returns.transitions import transitions
from seed_rl.common.types import EnvOutput

_MIN_STD = 1e-6


def compute_loss(
    config: SACConfig,
    distribution: ParametricDistribution,
    network: Any,
    target_network: Any,
    temperature: Coefficient,
    agent_state: Nest,
    prev_actions: Actions,
    env_outputs: EnvOutput,
    actions: Actions,
    rewards: tf.Tensor | None = None,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """The loss of a batch of unrolls of T + 1 steps, T of which are trained on.

    Args:
      config: options.
      distribution: over actions, parametrized by `network.get_action_params`.
      network: the one being trained, see `networks`.
      target_network: a network that follows it slowly.
      temperature: weight of the entropy, see `create_temperature`.
      agent_state: nest of [batch, ...], before the first step.
      prev_actions: nest of [time + 1, batch, ...].
      env_outputs: nest of [time + 1, batch, ...].
      actions: nest of [time + 1, batch, ...] taken after each step; the last are not used.
      rewards: <float32>[time + 1, batch] to learn from; None: those of `env_outputs`.

    Returns:
      (loss <float32>[], metrics <float32>[] by name).
    """
    seen = (prev_actions, env_outputs)
    if hasattr(network, "end_of_training_step_callback"):
        # Such a network collects statistics in calls with is_training.
        network(*seen, agent_state, unroll=True, is_training=True)
    seen_tm1, a_tm1 = tf.nest.map_structure(lambda t: t[:-1], (seen, actions))
    if rewards is not None:
        env_outputs = env_outputs._replace(reward=rewards)
    steps = transitions(
        env_outputs, config.discounting, config.reward_scaling, config.max_abs_reward
    )
    mean = replicas.BatchMean(steps.mask)
    alpha = tf.stop_gradient(temperature())

    pi_tm1 = distribution(network.get_action_params(*seen_tm1, agent_state))
    # In a mixed action, some parts may have a gradient and others none.
    fresh, log_probs = pi_tm1.sample_and_log_prob(distribution.reparametrizable)
    fresh_q = _of_actions(
        lambda a: _value(network.get_Q(*seen_tm1, agent_state, a)),
        fresh,
        distribution.reparametrizable,
    )
    soft_value = tf.stop_gradient(fresh_q - alpha * log_probs)

    v_loss: Any = 0.0
    v_metrics: dict[str, tf.Tensor] = {}
    if reads_v(config, distribution):
        v_tm1 = network.get_V(*seen_tm1, agent_state)
        v_loss = 0.5 * mean(tf.square(v_tm1 - soft_value))
        v_metrics = {
            "losses/v": v_loss,
            "value/v": mean(v_tm1),
            "value/explained_variance": mean.explained_variance(v_tm1, soft_value),
        }

    v_t = _bootstrap_values(config, distribution, network, target_network, alpha, seen, agent_state)
    r_t, discount_t = steps.r_t[..., tf.newaxis], steps.discount_t[..., tf.newaxis]
    targets = tf.stop_gradient(r_t + discount_t * v_t)
    q_tm1 = network.get_Q(*seen_tm1, agent_state, a_tm1)
    q_loss = mean(_critic_loss(q_tm1, targets))

    if distribution.reparametrizable:
        policy_loss = mean(alpha * log_probs - fresh_q)
    else:
        advantages = _normalized(soft_value - tf.stop_gradient(v_tm1), mean)
        policy_loss = -mean(log_probs * advantages)
    negative_entropy = log_probs
    if config.target_entropy is None and isinstance(env_outputs.observation, Mapping):
        negative_entropy -= _forbidden_entropy(distribution, seen_tm1[1].observation)
    # Divided by alpha, so that the gradient of log alpha is just the distance from the target: Adam
    # would remember the gradients of a large alpha, and slow its fall.
    temperature_loss = tf.math.divide_no_nan(
        temperature.adjustment_loss(mean.everywhere(negative_entropy)), alpha
    )

    target, q_values = tf.reduce_mean(targets, axis=-1), _means(q_tm1)
    metrics = {
        "losses/policy": policy_loss,
        "losses/q": q_loss,
        "policy/entropy": -mean(log_probs),
        "policy/entropy_cost": alpha,
        "q/value": mean(tf.reduce_mean(q_values, axis=-1)),
        "q/target": mean(target),
        "q/abs_td_error": mean(tf.reduce_mean(tf.abs(target[..., tf.newaxis] - q_values), axis=-1)),
        "value/target": mean(soft_value),
        **v_metrics,
    }
    std = mean_std(pi_tm1)
    if std is not None:
        metrics["policy/std"] = mean(std)
    loss = policy_loss + v_loss + q_loss + temperature_loss
    return loss, {name: tf.stop_gradient(value) for name, value in metrics.items()}


def reads_v(config: SACConfig, distribution: ParametricDistribution) -> bool:
    """Whether V is what Q bootstraps from, or the baseline of a policy gradient."""
    return config.bootstrap_net != BOOTSTRAP_Q or not distribution.reparametrizable


def create_temperature(config: SACConfig, action_space: spaces.Space[Any]) -> Coefficient:
    """The weight of the entropy: fixed, or a multiplier that keeps the entropy at a target.

    Args:
      config: options.
      action_space: determines the default of the target.
    """
    if not config.entropy_cost_adjustment_speed:
        return FixedCoefficient(config.entropy_cost)
    target = config.target_entropy
    if target is None:
        target = default_target_entropy(action_space)
    # The constraint on the mean log probability of actions, which is minus the entropy.
    return LagrangeInequalityCoefficient(
        threshold=-target,
        init_alpha=config.entropy_cost,
        adjustment_speed=config.entropy_cost_adjustment_speed,
    )


def default_target_entropy(action_space: spaces.Space[Any]) -> float:
    """-1 per component of a continuous action; half of the largest entropy of a discrete choice.

    The former is from the paper (1812.05905, appendix D), which has no discrete actions. Half of
    the largest entropy is that of a uniform choice among sqrt(n) of n alternatives.

    Args:
      action_space: of one environment; one for which there is a distribution.
    """
    target = 0.0
    for space in leaf_spaces(action_space):
        if isinstance(space, spaces.Box):
            target -= math.prod(space.shape)
        elif isinstance(space, spaces.MultiBinary):
            target += 0.5 * math.prod(space.shape) * math.log(2.0)
        else:
            sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else [space.n]
            target += 0.5 * sum(math.log(n) for n in sizes)
    return target


def _forbidden_entropy(
    distribution: ParametricDistribution, observation: Mapping[str, Any]
) -> tf.Tensor:
    """By how much masks lower the default target entropy, <float32>[time, batch]: the target is
    half of the largest entropy of what is allowed. 0 without masks.
    """
    if KEY not in observation:
        return tf.constant(0.0)
    shape = tf.concat([tf.shape(observation[KEY])[:-1], [distribution.param_size]], axis=0)
    largest = distribution(tf.zeros(shape)).entropy()
    return 0.5 * (largest - distribution(masked(tf.zeros(shape), observation)).entropy())


def _bootstrap_values(
    config: SACConfig,
    distribution: ParametricDistribution,
    network: Any,
    target_network: Any,
    alpha: tf.Tensor,
    seen: tuple[Actions, EnvOutput],
    agent_state: Nest,
) -> tf.Tensor:
    """Soft values <float32>[time, batch, atoms] of the states after each transition."""
    skipped = 1
    if not tf.nest.flatten(agent_state):
        # Without memory, the first step is not needed: with one transition, half of the work.
        seen, skipped = tf.nest.map_structure(lambda t: t[1:], seen), 0
    if config.bootstrap_net != BOOTSTRAP_Q:
        return target_network.get_V(*seen, agent_state)[skipped:, ..., tf.newaxis]
    pi = distribution(network.get_action_params(*seen, agent_state))
    fresh, log_probs = pi.sample_and_log_prob()
    q = target_network.get_Q(*seen, agent_state, fresh)
    atoms = _bootstrap_atoms(q, config.dropped_quantiles_per_critic)
    return (atoms - alpha * log_probs[..., tf.newaxis])[skipped:]


def _value(q: tf.Tensor) -> tf.Tensor:
    """Value <float32>[time, batch] of actions, which the actor maximizes."""
    return tf.reduce_min(q, axis=-1) if q.shape.rank == 3 else tf.reduce_mean(q, axis=[-2, -1])


def _means(q: tf.Tensor) -> tf.Tensor:
    """Each critic's value <float32>[time, batch, critics]."""
    return q if q.shape.rank == 3 else tf.reduce_mean(q, axis=-1)


def _bootstrap_atoms(q: tf.Tensor, dropped_per_critic: int) -> tf.Tensor:
    """Values <float32>[time, batch, atoms] from which targets bootstrap."""
    if q.shape.rank == 3:
        return _value(q)[..., tf.newaxis]
    critics, quantiles = q.shape[-2:]
    atoms = tf.reshape(q, tf.concat([tf.shape(q)[:2], [critics * quantiles]], axis=0))
    return tf.sort(atoms, axis=-1)[..., : critics * (quantiles - dropped_per_critic)]


def _critic_loss(q: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
    """Loss <float32>[time, batch] of all critics.

    Half the squared error of each, or its quantile Huber loss (TQC, section 4.3): the mean of
    |tau_i - [y < q_i]| H(y - q_i) over targets y and quantiles q_i, at tau_i = (i + 1/2) / M.

    Args:
      q: of the actions taken.
      targets: <float32>[time, batch, atoms].
    """
    if q.shape.rank == 3:
        return 0.5 * tf.reduce_sum(tf.square(targets - q), axis=-1)
    errors = targets[..., tf.newaxis, :, tf.newaxis] - q[..., tf.newaxis, :]
    bounded = tf.clip_by_value(errors, -1.0, 1.0)
    huber = bounded * (errors - 0.5 * bounded)
    quantiles = q.shape[-1]
    tau = (tf.range(quantiles, dtype=tf.float32) + 0.5) / quantiles
    weighted = tf.where(errors < 0, 1.0 - tau, tau) * huber
    return tf.reduce_sum(tf.reduce_mean(weighted, axis=[-2, -1]), axis=-1)


def _of_actions(
    q_of: Callable[[Actions], tf.Tensor], actions: Actions, differentiable: bool
) -> tf.Tensor:
    """`q_of(actions)` <float32>[time, batch] as a function of the actions alone.

    Its gradient with respect to the actions is that of Q, and that with respect to the variables
    of Q is zero. So the actor can be trained with any network, without knowing its variables.

    Args:
      q_of: maps actions to values; each step's value depends on the action of that step only.
      actions: nest of [time, batch, ...].
      differentiable: whether there is a gradient with respect to the actions.
    """
    fixed = tf.nest.map_structure(tf.stop_gradient, actions)
    if not differentiable:
        return tf.stop_gradient(q_of(fixed))
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(fixed)
        q = q_of(fixed)
    slopes = tf.nest.flatten(tape.gradient(q, fixed, unconnected_gradients="zero"))
    q = tf.stop_gradient(q)
    for slope, free, value in zip(
        slopes, tf.nest.flatten(actions), tf.nest.flatten(fixed), strict=True
    ):
        # Zero, with the slope as its gradient.
        q += tf.reduce_sum(tf.stop_gradient(slope) * (free - value), axis=-1)
    return q


def _normalized(values: tf.Tensor, mean: replicas.BatchMean) -> tf.Tensor:
    """`values` with mean 0 and standard deviation 1 over the unmasked elements of the batch."""
    centered = values - mean.everywhere(values)
    return centered / tf.maximum(tf.sqrt(mean.everywhere(tf.square(centered))), _MIN_STD)
