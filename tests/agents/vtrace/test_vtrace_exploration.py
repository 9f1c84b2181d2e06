"""Actions that persist: a Markov chain whose stationary distribution is a policy that stays."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.vtrace.algorithm import persist
from seed_rl.common.distributions.discrete import categorical_distribution

CHAINS = 40_000
POLICY = np.array([0.5, 0.3, 0.15, 0.05, 0.0])


@pytest.fixture(autouse=True)
def seed():
    tf.random.set_seed(0)


def step(prev_actions, mean_steps, policy=POLICY, first=False, start=0):
    with np.errstate(divide="ignore"):
        logits = np.log(np.asarray(policy, np.float32)) + 2  # A constant changes nothing.
    actions = persist(
        categorical_distribution(len(policy), tf.int64, start),
        tf.constant(np.tile(logits, (len(prev_actions), 1))),
        tf.constant(prev_actions, tf.int64),
        tf.fill([len(prev_actions)], first),
        mean_steps,
    )
    return actions.numpy()


def shares(actions, start=0):
    return np.bincount(actions - start, minlength=len(POLICY)) / len(actions)


@pytest.mark.parametrize("mean_steps", [1, 4, 100])
@pytest.mark.parametrize("start", [0, 7])
def test_actions_are_distributed_as_the_policy(mean_steps, start):
    """Guards what is recorded for training: that actions were chosen with the policy's logits."""
    actions = np.random.default_rng(0).choice(len(POLICY), CHAINS, p=POLICY) + start
    for _ in range(5):
        actions = step(actions, mean_steps, start=start)
        np.testing.assert_allclose(shares(actions, start), POLICY, atol=0.012)


def test_transitions_are_those_of_the_docstring():
    allowed = np.count_nonzero(POLICY)
    kept = (1 - 1 / 4) * POLICY * (1 / POLICY.max() - 1) * allowed / (allowed - 1)
    drawn = POLICY * (1 - kept) / (POLICY * (1 - kept)).sum()
    for previous in range(len(POLICY)):
        expected = (1 - kept[previous]) * drawn
        expected[previous] += kept[previous]
        found = shares(step(np.full(CHAINS, previous), 4))
        np.testing.assert_allclose(found, expected, atol=0.012)


def test_without_a_previous_action_the_policy_is_sampled():
    actions = step(np.full(CHAINS, 2), 1000, first=True)
    np.testing.assert_allclose(shares(actions), POLICY, atol=0.012)


def test_an_undecided_policy_keeps_actions_and_a_decided_one_does_not():
    before = np.repeat(np.arange(5), 1000)
    undecided = step(before, 50, policy=np.full(5, 0.2))
    assert 0.96 < np.mean(undecided == before) < 1
    decided = step(before, 50, policy=[0.99, 0.01, 0, 0, 0])
    assert np.mean(decided == 0) > 0.98
    only = step(before, 50, policy=[0, 0, 1, 0, 0])
    assert np.all(only == 2)


def test_logits_that_are_not_numbers_still_give_an_action():
    """Guards inference for others: NaN comes from an environment that reports NaN."""
    assert 0 <= step(np.array([1]), 8, policy=[np.nan] * 5)[0] < 5
