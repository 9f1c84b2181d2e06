"""The computations of R2D2 as pure functions (Kapturowski et al. 2019, sections 2.3 and 3).

Below, T is the number of steps trained on. A batch has T + 1 steps after burn-in: the last one
only provides the bootstrap value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.common.inference.exploration import explore
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.nest import Nest
from seed_rl.common.returns.scans import backward_linear_scan
from seed_rl.common.returns.transitions import transitions
from seed_rl.common.types import EnvOutput

_EPSILON_BASE, _FIRST_EXPONENT, _LAST_EXPONENT = 0.4, 1.0, 8.0


def value_function_rescaling(x: tf.Tensor, epsilon: float = 1e-3) -> tf.Tensor:
    """h(x) = sign(x)(sqrt(|x| + 1) - 1) + epsilon x (Pohlen et al. 2018, proposition A.2)."""
    size = tf.abs(x)
    # sqrt(s + 1) - 1, written so that small numbers keep their precision.
    return tf.sign(x) * size / (tf.sqrt(size + 1.0) + 1.0) + epsilon * x


def inverse_value_function_rescaling(x: tf.Tensor, epsilon: float = 1e-3) -> tf.Tensor:
    """Inverse of `value_function_rescaling`."""
    size = tf.abs(x)
    shifted = size + 1.0 + epsilon
    # Equal to (sqrt(1 + 4 epsilon shifted) - 1) / (2 epsilon), but exact for small epsilon too.
    root = 2.0 * shifted / (tf.sqrt(1.0 + 4.0 * epsilon * shifted) + 1.0)
    return tf.sign(x) * (tf.square(root) - 1.0)


def n_step_bellman_target(
    rewards: tf.Tensor,
    done: tf.Tensor,
    q_target: tf.Tensor,
    gamma: float,
    n_steps: int,
    abandoned: tf.Tensor | None = None,
) -> tf.Tensor:
    """Discounted sum of the next `n_steps` rewards and the value of the state after them.

    The sum stops at the end of an episode. Near the end of the sequence, it uses the remaining
    rewards and the last value.

    An abandoned episode reports its last state as an ordinary step whose action is never taken;
    the step after it has `abandoned`. Returns end at that state with its value.

    Args:
      rewards: <float32>[time, batch] of each action.
      done: <bool>[time, batch] whether the action ended the episode.
      q_target: <float32>[time, batch] value of the state after each action.
      gamma: discount factor.
      n_steps: at least 1.
      abandoned: <bool>[time, batch] where there was no transition; None: nowhere.

    Returns:
      <float32>[time, batch]; meaningless where `abandoned`.
    """
    r_t, v_t = rewards, q_target
    discount_t = gamma * (1.0 - tf.cast(done, r_t.dtype))
    if abandoned is not None:
        # The "return" from the last state of an abandoned episode is the value of that state.
        v_tm1 = tf.concat([tf.zeros_like(v_t[:1]), v_t[:-1]], axis=0)
        r_t = tf.where(abandoned, v_tm1, r_t)
        discount_t = tf.where(abandoned, tf.zeros_like(discount_t), discount_t)
    following = v_t
    for _ in range(n_steps):
        targets = r_t + discount_t * following
        following = tf.concat([targets[1:], v_t[-1:]], axis=0)
    return targets


def q_lambda_target(
    rewards: tf.Tensor,
    discounts: tf.Tensor,
    values: tf.Tensor,
    next_q: tf.Tensor,
    traces: tf.Tensor,
) -> tf.Tensor:
    """Q(lambda) returns: G_t = r_t + gamma (V_{t+1} + lambda_{t+1} (G_{t+1} - Q_{t+1})).

    They end with an episode, and with the last value of the sequence.

    Args:
      rewards: <float32>[time, batch] of each action.
      discounts: <float32>[time, batch] gamma; 0 where the action ended the episode.
      values: <float32>[time, batch] V_{t+1}, the value of the state after each action.
      next_q: <float32>[time, batch] Q_{t+1}, the value of the next action in that state; not used
        where `traces` is 0, and may be -inf there.
      traces: <float32>[time, batch] lambda_{t+1}; 0 at the last step.

    Returns:
      <float32>[time, batch].
    """
    corrections = tf.where(traces > 0, traces * next_q, tf.zeros_like(next_q))
    return backward_linear_scan(discounts * traces, rewards + discounts * (values - corrections))


def soft_watkins_traces(
    q_values: tf.Tensor,
    actions: tf.Tensor,
    abandoned: tf.Tensor,
    trace_lambda: float,
    tolerance: float,
) -> tf.Tensor:
    """Lambda where the action taken is as good as greedy, 0 elsewhere (arXiv 2209.07550).

    That is where Q(s, a) >= max Q(s, .) - tolerance |max Q(s, .)|; 0 where no action was taken.

    Args:
      q_values: <float32>[time, batch, actions], of the policy that is learned.
      actions: <int>[time, batch] taken.
      abandoned: <bool>[time, batch] where there was no transition.
      trace_lambda: lambda.
      tolerance: kappa.

    Returns:
      <float32>[time, batch].
    """
    best = tf.reduce_max(q_values, axis=-1)
    taken = tf.gather(q_values, actions, batch_dims=2)
    follows = (taken >= best - tolerance * tf.abs(best)) & ~abandoned
    return tf.where(follows, trace_lambda, tf.zeros_like(best))


class TDErrors(NamedTuple):
    """Errors of T steps, <float32>[time, batch].

    Attributes:
      errors: target - Q, in rescaled units; 0 where `mask` is 0.
      mask: 0 where the step was the last state of an abandoned episode, 1 elsewhere.
      q_values: Q of the action taken, in rescaled units.
      targets: without gradient, in rescaled units.
    """

    errors: tf.Tensor
    mask: tf.Tensor
    q_values: tf.Tensor
    targets: tf.Tensor


def td_errors(
    config: R2D2Config,
    q_values: tf.Tensor,
    target_q_values: tf.Tensor,
    env_outputs: EnvOutput,
    actions: tf.Tensor,
) -> TDErrors:
    """Double Q-learning (van Hasselt et al. 2016) with value rescaling.

    Targets are n-step returns, or Q(lambda) returns if `trace_lambda` is set.

    Args:
      config: options.
      q_values: <float32>[time + 1, batch, actions] of the training network.
      target_q_values: those of the target network.
      env_outputs: nest of [time + 1, batch, ...].
      actions: <int>[time + 1, batch] taken after each step; the last is not used.
    """
    q_tm1, a_tm1 = q_values[:-1], actions[:-1]
    qa_tm1 = tf.gather(q_tm1, a_tm1, batch_dims=2)
    best_t = tf.argmax(q_values[1:], axis=-1)
    v_t = tf.gather(target_q_values[1:], best_t, batch_dims=2)
    steps = transitions(
        env_outputs, config.discounting, config.reward_scaling, config.max_abs_reward
    )
    done_t, abandoned_t = env_outputs.done[1:], env_outputs.abandoned[1:]
    epsilon = config.value_function_rescaling_epsilon
    if config.value_function_rescaling:
        v_t = inverse_value_function_rescaling(v_t, epsilon)
    if config.trace_lambda:
        # Of the actions after each step; the last one's return is not known.
        traces = soft_watkins_traces(
            *(q_values[1:-1], actions[1:-1], abandoned_t[1:]),
            *(config.trace_lambda, config.trace_tolerance),
        )
        traces = tf.concat([traces, tf.zeros_like(v_t[:1])], axis=0)
        next_q = tf.gather(target_q_values[1:], actions[1:], batch_dims=2)
        if config.value_function_rescaling:
            next_q = inverse_value_function_rescaling(next_q, epsilon)
        targets = q_lambda_target(steps.r_t, steps.discount_t, v_t, next_q, traces)
    else:
        targets = n_step_bellman_target(
            steps.r_t, done_t, v_t, config.discounting, config.n_steps, abandoned_t
        )
    if config.value_function_rescaling:
        targets = value_function_rescaling(targets, epsilon)
    targets = tf.stop_gradient(targets)
    # Not a product: the action never taken may be one that the network masks (Q = -inf).
    errors = tf.where(abandoned_t, tf.zeros_like(targets), targets - qa_tm1)
    return TDErrors(errors, steps.mask, qa_tm1, targets)


def unroll_losses(td: TDErrors) -> tf.Tensor:
    """Half the sum of squared errors of each unroll, <float32>[batch]."""
    return 0.5 * tf.reduce_sum(tf.square(td.errors), axis=0)


def priorities(td: TDErrors, eta: float = 0.9) -> tf.Tensor:
    """Of unrolls: eta max|error| + (1 - eta) mean|error| over unmasked steps, <float32>[batch]."""
    sizes = tf.stop_gradient(tf.abs(td.errors))
    mean = tf.math.divide_no_nan(tf.reduce_sum(sizes, axis=0), tf.reduce_sum(td.mask, axis=0))
    return eta * tf.reduce_max(sizes, axis=0) + (1.0 - eta) * mean


def replay_errors(
    config: R2D2Config,
    training_network: Any,
    target_network: Any,
    agent_state: Nest,
    prev_actions: Nest,
    env_outputs: EnvOutput,
    actions: tf.Tensor,
    rewards: tf.Tensor | None = None,
) -> TDErrors:
    """Runs both networks on unrolls, from the stored state through burn-in.

    Burn-in starts from the stored recurrent state and brings each network to the state that its
    current weights produce (section 3). No gradient flows into it.

    Args:
      config: options.
      training_network: the network being trained.
      target_network: the target network.
      agent_state: nest of [batch, ...], stored by inference before the first step.
      prev_actions: nest of [burn_in + T + 1, batch, ...].
      env_outputs: nest of [burn_in + T + 1, batch, ...].
      actions: <int>[burn_in + T + 1, batch] taken after each step.
      rewards: <float32>[burn_in + T + 1, batch] to learn from; None: those of `env_outputs`, which
        the networks read in any case.
    """
    burn_in = config.burn_in

    def run(
        network: Any, state: Nest, start: int | None = None, stop: int | None = None
    ) -> tuple[Any, Nest]:
        before, observed = tf.nest.map_structure(
            lambda t: t[start:stop], (prev_actions, env_outputs)
        )
        # A network that collects statistics does so when it is trained, not when it is the target.
        return call_network(network, before, observed, state, True, network is training_network)

    state = agent_state
    if burn_in:
        _, state = run(training_network, state, stop=burn_in)
        state = tf.nest.map_structure(tf.stop_gradient, state)
    output, _ = run(training_network, state, start=burn_in)
    # The target network needs no gradient, so one call covers burn-in and the rest; two are slower
    # with small batches.
    target_output, _ = run(target_network, agent_state)
    if rewards is not None:
        env_outputs = env_outputs._replace(reward=rewards)
    trained_on = tf.nest.map_structure(lambda t: t[burn_in:], env_outputs)
    q_values, target_q_values = output.q_values, target_output.q_values[burn_in:]
    return td_errors(config, q_values, target_q_values, trained_on, actions[burn_in:])


def get_envs_epsilon(
    env_ids: tf.Tensor, num_training_envs: int, num_eval_envs: int, eval_epsilon: float
) -> tf.Tensor:
    """Exploration rate of each environment (Horgan et al. 2018, section 4.1).

    Training environments have 0.4 ^ x, with x from 1 to 8 in equal steps.

    Args:
      env_ids: <int32>[batch].
      num_training_envs: their ids are [0, num_training_envs).
      num_eval_envs: their ids follow; all have `eval_epsilon`.
      eval_epsilon: probability of a random action in evaluation environments.

    Returns:
      <float32>[batch].
    """
    exponents = tf.linspace(_FIRST_EXPONENT, _LAST_EXPONENT, num_training_envs)
    training = tf.pow(_EPSILON_BASE, tf.cast(exponents, tf.float32))
    evaluation = tf.fill([num_eval_envs], tf.constant(eval_epsilon, tf.float32))
    return tf.gather(tf.concat([training, evaluation], axis=0), env_ids)


def apply_epsilon_greedy(
    actions: tf.Tensor,
    env_ids: tf.Tensor,
    num_training_envs: int,
    num_eval_envs: int,
    eval_epsilon: float,
    num_actions: int,
    q_values: tf.Tensor | None = None,
) -> tf.Tensor:
    """Replaces actions with random ones at each environment's rate; see `get_envs_epsilon`.

    Args:
      actions: <int>[batch] greedy actions, in [0, num_actions).
      env_ids: <int32>[batch].
      num_training_envs: their ids are [0, num_training_envs).
      num_eval_envs: their ids follow.
      eval_epsilon: probability of a random action in evaluation environments.
      num_actions: number of actions.
      q_values: see `exploration.explore`.
    """
    epsilons = get_envs_epsilon(env_ids, num_training_envs, num_eval_envs, eval_epsilon)
    return explore(actions, epsilons, num_actions, q_values)
