"""R2D2's formulas against plain loops written from the papers."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.r2d2 import learner, losses
from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.agents.r2d2.networks import AgentOutput
from seed_rl.common.types import EnvOutput


def rescale(x, epsilon=1e-3):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def unscale(y, epsilon=1e-3):
    """Inverts `rescale` by bisection, without knowing the closed form."""
    low, high = -1e12, 1e12
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if rescale(middle, epsilon) < y else (low, middle)
    return (low + high) / 2


def bellman_target(rewards, done, abandoned, q_target, gamma, n_steps):
    """Follows the rewards of one environment step by step.

    Action i leads to the state whose value is q_target[i]. Where abandoned[i + 1], the state
    after action i is the last of its episode and the next action is not taken.
    """
    length = len(rewards)
    targets = []
    for start in range(length):
        total, discount = 0.0, 1.0
        for i in range(start, min(start + n_steps, length)):
            total += discount * rewards[i]
            discount *= gamma
            if done[i]:
                discount = 0.0
                break
            if i + 1 < length and abandoned[i + 1]:
                break
        targets.append(total + discount * q_target[i])
    return targets


def random_episodes(rng, steps, batch):
    """rewards, done and abandoned as environments report them."""
    done = rng.random([steps, batch]) < 0.2
    abandoned = done & (rng.random([steps, batch]) < 0.4)
    rewards = np.where(abandoned, 0.0, rng.normal(size=[steps, batch])).astype(np.float32)
    return rewards, done, abandoned


@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 1e-2])
def test_rescaling(epsilon):
    """Guards h and its inverse, for values of all sizes, and against a division by epsilon."""
    x = np.concatenate([[0.0], np.logspace(-4, 5, 19)]).astype(np.float32)
    x = np.concatenate([-x, x])
    y = losses.value_function_rescaling(x, epsilon).numpy()
    np.testing.assert_allclose(y, rescale(x.astype(np.float64), epsilon), rtol=1e-5, atol=1e-7)
    inverse = losses.inverse_value_function_rescaling(y, epsilon).numpy()
    expected = [unscale(float(v), epsilon) for v in y]
    np.testing.assert_allclose(inverse, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("n_steps", [1, 2, 5, 30])
def test_n_step_target_follows_rewards(n_steps):
    """Guards ends of episodes, cut-off episodes and the short returns at the end."""
    rng = np.random.default_rng(n_steps)
    rewards, done, abandoned = random_episodes(rng, 12, 40)
    q_target = rng.normal(size=rewards.shape).astype(np.float32)
    targets = losses.n_step_bellman_target(
        rewards, tf.constant(done), tf.constant(q_target), 0.9, n_steps, tf.constant(abandoned)
    ).numpy()
    for b in range(rewards.shape[1]):
        column = [x[:, b] for x in (rewards, done, abandoned, q_target)]
        expected = np.array(bellman_target(*column, 0.9, n_steps))
        real = ~abandoned[:, b]
        np.testing.assert_allclose(targets[real, b], expected[real], rtol=1e-5, atol=1e-5)


def env_outputs(rewards, done, abandoned):
    """Puts the step before all transitions in front."""
    rewards, done, abandoned = (
        np.concatenate([np.zeros_like(x[:1]), x]) for x in (rewards, done, abandoned)
    )
    steps = np.zeros(done.shape, np.int32)
    return EnvOutput(*map(tf.constant, (rewards, done, np.zeros(done.shape), abandoned, steps)))


def random_outputs(rng, steps, batch, actions=3):
    q_values = rng.normal(size=[steps, batch, actions]).astype(np.float32)
    taken = rng.integers(actions, size=[steps, batch]).astype(np.int32)
    return AgentOutput(tf.constant(taken), tf.constant(q_values))


@pytest.mark.parametrize("max_abs_reward", [None, 0.0, 0.5])
@pytest.mark.parametrize("rescaling", [True, False])
def test_double_q_errors_losses_and_priorities(rescaling, max_abs_reward):
    """Guards double Q (who chooses, who values), alignment in time, masks and priorities."""
    rng = np.random.default_rng(0)
    length, batch, eta = 9, 30, 0.7
    rewards, done, abandoned = random_episodes(rng, length, batch)
    training, target = (random_outputs(rng, length + 1, batch) for _ in range(2))
    actions = rng.integers(3, size=[length + 1, batch])
    config = R2D2Config(
        discounting=0.95,
        n_steps=3,
        value_function_rescaling=rescaling,
        reward_scaling=2.0,
        max_abs_reward=max_abs_reward,
    )
    td = losses.td_errors(
        config,
        training.q_values,
        target.q_values,
        env_outputs(rewards, done, abandoned),
        tf.constant(actions),
    )
    loss, priority = losses.unroll_losses(td).numpy(), losses.priorities(td, eta).numpy()
    clipped = np.clip(2 * rewards, -0.5, 0.5) if max_abs_reward else 2 * rewards
    for b in range(batch):
        values = []
        for t in range(1, length + 1):
            best = int(np.argmax(training.q_values[t, b]))
            value = float(target.q_values[t, b, best])
            values.append(unscale(value) if rescaling else value)
        column = [x[:, b] for x in (clipped, done, abandoned)]
        targets = bellman_target(*column, values, 0.95, 3)
        errors = []
        for t in range(length):
            wanted = rescale(targets[t]) if rescaling else targets[t]
            if not abandoned[t, b]:
                errors.append(wanted - float(training.q_values[t, b, actions[t, b]]))
        np.testing.assert_allclose(loss[b], 0.5 * np.sum(np.square(errors)), rtol=1e-4)
        sizes = np.abs(errors)
        expected = eta * sizes.max() + (1 - eta) * sizes.mean()
        np.testing.assert_allclose(priority[b], expected, rtol=1e-4)


def q_lambda_return(start, rewards, done, abandoned, values, q_taken, follows, gamma, lam):
    """Q + sum of (product of gamma lambda_i) TD errors, written out as in the paper.

    values[i] and q_taken[i] are of the state before action i; values has one more.
    """
    total, weight = q_taken[start], 1.0
    for i in range(start, len(rewards)):
        ends = done[i]
        total += weight * (rewards[i] + (0.0 if ends else gamma * values[i + 1]) - q_taken[i])
        if ends or i + 1 == len(rewards) or abandoned[i + 1] or not follows[i + 1]:
            break
        weight *= gamma * lam
    return total


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("rescaling", [True, False])
def test_soft_watkins_q_lambda(rescaling, masked):
    """Guards where traces are cut, ends of episodes, and actions that the network masks."""
    rng = np.random.default_rng(1)
    length, batch, kappa = 12, 40, 0.2
    rewards, done, abandoned = random_episodes(rng, length, batch)
    training, target = (random_outputs(rng, length + 1, batch) for _ in range(2))
    actions = np.array(training.q_values).argmax(-1)  # Mostly greedy: traces are long.
    random = rng.random(actions.shape) < 0.4
    actions[random] = rng.integers(3, size=random.sum())
    if masked:  # What is not taken; and in the last state of an abandoned episode, anything.
        allowed = np.arange(3) != (actions[..., None] + 1) % 3
        allowed[:-1][abandoned] = np.arange(3) != actions[:-1][abandoned][:, None]
        training, target = (
            output._replace(q_values=tf.where(allowed, output.q_values, -np.inf))
            for output in (training, target)
        )
    options = dict(trace_lambda=0.8, trace_tolerance=kappa, value_function_rescaling=rescaling)
    td = losses.td_errors(
        R2D2Config(discounting=0.95, **options),
        *(training.q_values, target.q_values, env_outputs(rewards, done, abandoned)),
        tf.constant(actions),
    )
    online, slow = training.q_values.numpy(), target.q_values.numpy()
    followed = 0
    for b in range(batch):
        values, q_taken, follows = [], [], []
        for t in range(length + 1):
            best = int(np.argmax(online[t, b]))
            pair = [float(slow[t, b, a]) for a in (best, actions[t, b])]
            value, taken = [unscale(x) if rescaling and np.isfinite(x) else x for x in pair]
            values.append(value)
            q_taken.append(taken)
            top = online[t, b, best]
            follows.append(online[t, b, actions[t, b]] >= top - kappa * abs(top))
        followed += sum(follows)
        columns = [x[:, b] for x in (rewards, done, abandoned)]
        for t in range(length):
            if abandoned[t, b]:
                assert td.errors[t, b] == 0
                continue
            wanted = q_lambda_return(t, *columns, values, q_taken, follows, 0.95, 0.8)
            wanted = rescale(wanted) if rescaling else wanted
            np.testing.assert_allclose(td.targets[t, b], wanted, rtol=1e-3, atol=1e-4)
    assert 0.5 < followed / (batch * (length + 1)) < 0.9


def test_priority_of_an_unroll_without_any_transition_is_zero():
    """Guards against dividing by the number of real steps where there is none."""
    td = losses.TDErrors(*(tf.zeros([1, 2]) for _ in range(4)))
    np.testing.assert_array_equal(losses.priorities(td), [0.0, 0.0])


@pytest.mark.parametrize("forbidden", [False, True])
def test_the_untaken_action_of_a_cut_off_episode_has_no_gradient(forbidden):
    """Guards truncation: no error, even where the network masks it, and Q only bootstraps."""
    config = R2D2Config(n_steps=2)
    q_values = np.random.default_rng(0).normal(size=[4, 1, 2]).astype(np.float32)
    if forbidden:
        q_values[1, 0, 0] = -np.inf
    q_values = tf.Variable(q_values)
    done = np.array([[False], [True], [False]])
    outputs = env_outputs(np.array([[1.0], [0.0], [1.0]], np.float32), done, done)
    with tf.GradientTape() as tape:
        q = tf.convert_to_tensor(q_values)
        td = losses.td_errors(config, q, q, outputs, tf.zeros([4, 1], tf.int32))
        loss = losses.unroll_losses(td)
    assert np.isfinite(losses.priorities(td)).all() and td.errors[1, 0] == 0
    gradient = tape.gradient(loss, q_values).numpy()
    np.testing.assert_array_equal(gradient[1], 0.0)  # The last state of the first episode.
    assert gradient[0, 0, 0] != 0 and gradient[2, 0, 0] != 0
    best = float(tf.reduce_max(q_values[1]))
    np.testing.assert_allclose(td.targets[0, 0], rescale(1.0 + 0.997 * unscale(best)), rtol=1e-4)


class SumNet(tf.Module):
    """Q-values and state are the sum of all observations since the episode began, times a weight.

    In the form of existing programs: the first two arguments in one.
    """

    def __init__(self, weight):
        super().__init__()
        self.weight = tf.Variable(weight)

    def __call__(self, input_, agent_state, unroll=False):
        prev_actions, env_outputs = input_
        assert unroll
        outputs = []
        for t in range(prev_actions.shape[0]):
            agent_state = tf.where(env_outputs.done[t], 0.0, agent_state)
            agent_state += self.weight * env_outputs.observation[t]
            outputs.append(agent_state)
        q_values = tf.stack([tf.stack(outputs), tf.zeros_like(outputs)], axis=-1)
        return AgentOutput(None, q_values), agent_state


@pytest.mark.parametrize("reset", [True, False])
def test_burn_in_renews_the_state_of_both_networks_without_gradient(reset):
    """Guards that burn-in starts from the stored state, uses each network's own weights and is not
    trained through.
    """
    burn_in, length = 3, 4
    observations = np.arange(1.0, burn_in + length + 2, dtype=np.float32)[:, None]
    done = np.zeros_like(observations, bool)
    done[1] = reset
    outputs = EnvOutput(
        tf.zeros_like(observations), tf.constant(done), tf.constant(observations),
        tf.constant(np.zeros_like(done)), tf.zeros(done.shape, tf.int32),
    )  # fmt: skip
    prev_actions = tf.zeros(observations.shape, tf.int32)
    config = R2D2Config(burn_in=burn_in, n_steps=1, discounting=0.5, value_function_rescaling=False)
    training, target = SumNet(2.0), SumNet(3.0)
    with tf.GradientTape() as tape:
        td = losses.replay_errors(
            config, training, target, tf.constant([100.0]), prev_actions, outputs, prev_actions
        )
        loss = tf.reduce_sum(td.q_values)
    # The stored state is forgotten at `done`; observations 2 and 3 remain of burn-in.
    stored, in_burn_in = (0.0, 2.0 + 3.0) if reset else (100.0, 1.0 + 2.0 + 3.0)
    sums = in_burn_in + np.cumsum(observations[burn_in:, 0])
    np.testing.assert_allclose(td.q_values[:, 0], stored + 2.0 * sums[:-1])
    np.testing.assert_allclose(td.targets[:, 0], 0.5 * (stored + 3.0 * sums[1:]))
    # Of d(2 * sum)/dweight, only what was observed after burn-in.
    np.testing.assert_allclose(tape.gradient(loss, training.weight), np.sum(sums[:-1] - in_burn_in))


def test_epsilons():
    """Guards the schedule 0.4 ^ (1 + 7 i / (N - 1)) and the evaluation environments."""
    epsilons = losses.get_envs_epsilon(tf.constant([0, 1, 2, 3, 4, 5]), 4, 2, 0.01).numpy()
    expected = [0.4 ** (1 + 7 * i / 3) for i in range(4)] + [0.01, 0.01]
    np.testing.assert_allclose(epsilons, expected, rtol=1e-5)
    np.testing.assert_allclose(losses.get_envs_epsilon([0], 1, 0, 0.0), [0.4])


@pytest.mark.parametrize("allowed", [None, [2], [0, 2], []])
def test_epsilon_greedy_frequencies(allowed):
    """Guards that each environment explores by its own epsilon, uniformly over the actions that the
    network does not mask; all, if it masks all.
    """
    tf.random.set_seed(0)
    repeats, num_actions = 20_000, 4
    env_ids = tf.repeat(tf.range(3), repeats)
    arguments = [tf.fill([3 * repeats], 2), env_ids, 2, 1, 0.25, num_actions]
    if allowed is not None:
        q_values = np.where(np.isin(range(num_actions), allowed), 0.1, -np.inf)
        arguments.append(tf.constant(np.tile(q_values, (3 * repeats, 1)), tf.float32))
    actions = losses.apply_epsilon_greedy(*arguments).numpy()
    chosen = allowed or range(num_actions)
    for env_id, epsilon in enumerate([0.4, 0.4**8, 0.25]):
        counts = np.bincount(actions[env_ids.numpy() == env_id], minlength=num_actions)
        expected = np.where(np.isin(range(num_actions), chosen), epsilon / len(chosen), 0.0)
        expected[2] += 1 - epsilon
        np.testing.assert_allclose(counts / repeats, expected, atol=0.01)
        if len(chosen) < num_actions:
            assert set(np.flatnonzero(counts)) <= set(chosen)


def test_losses_as_existing_programs_call_them():
    """Guards the names, signatures and defaults that programs for the original code use, and env
    outputs in a plain tuple.
    """
    rng = np.random.default_rng(1)
    length, batch = 6, 3
    rewards, done, abandoned = random_episodes(rng, length, batch)
    outputs = env_outputs(rewards, done, abandoned)
    training, target, behaviour = (random_outputs(rng, length + 1, batch, 2) for _ in range(3))
    loss, priorities = learner.compute_loss_and_priorities_from_agent_outputs(
        training, target, tuple(outputs), behaviour, gamma=0.9, eta=0.5
    )
    config = R2D2Config(discounting=0.9)
    values = training.q_values, target.q_values
    td = losses.td_errors(config, *values, outputs, behaviour.action)
    np.testing.assert_allclose(loss, losses.unroll_losses(td))
    np.testing.assert_allclose(priorities, losses.priorities(td, 0.5))

    observations = tf.constant(rng.normal(size=[length + 1, batch]), tf.float32)
    observed = outputs._replace(observation=observations)
    networks, state = (SumNet(2.0), SumNet(3.0)), tf.zeros([batch])
    loss, priorities = learner.compute_loss_and_priorities(
        *networks, state, behaviour.action, tuple(observed), behaviour, gamma=0.9, burn_in=2
    )
    config = R2D2Config(discounting=0.9, burn_in=2)
    td = losses.replay_errors(
        config, *networks, state, behaviour.action, observed, behaviour.action
    )
    np.testing.assert_allclose(loss, losses.unroll_losses(td))
    np.testing.assert_allclose(priorities, losses.priorities(td))
    assert loss.shape == priorities.shape == [batch]


def test_the_target_network_is_not_told_that_it_trains():
    """Guards networks that collect statistics while they train."""
    told = []

    class Network(tf.Module):
        def __call__(self, prev_actions, env_outputs, state, unroll=False, is_training=False):
            told.append((self, is_training))
            return AgentOutput(None, tf.zeros([*prev_actions.shape, 2])), state

    zeros, no, actions = tf.zeros([4, 1]), tf.zeros([4, 1], tf.bool), tf.zeros([4, 1], tf.int32)
    env_outputs = EnvOutput(zeros, no, zeros, no, actions)
    training, target, config = Network(), Network(), R2D2Config(burn_in=1, n_steps=1)
    losses.replay_errors(config, training, target, (), actions, env_outputs, actions)
    assert [flag for network, flag in told if network is target] == [False]
    assert all(flag for network, flag in told if network is training)
