"""V-trace against a plain reading of the paper's equation."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.returns import vtrace


def paper_vtrace(log_rhos, discounts, rewards, values, bootstrap, rho_bar, pg_rho_bar, lambda_):
    """Equation 1 as a double sum, written out in float64 and O(T^2) on purpose."""
    num_steps = log_rhos.shape[0]
    rhos = np.exp(log_rhos.astype(np.float64))
    cs = lambda_ * np.minimum(1.0, rhos)
    clipped = rhos if rho_bar is None else np.minimum(rho_bar, rhos)
    pg_clipped = rhos if pg_rho_bar is None else np.minimum(pg_rho_bar, rhos)
    values_and_next = np.concatenate([values, bootstrap[None]]).astype(np.float64)
    vs = np.zeros(values.shape)
    for s in range(num_steps):
        total = values_and_next[s].copy()
        for t in range(s, num_steps):
            weight = np.ones_like(total)
            for i in range(s, t):
                weight *= discounts[i] * cs[i]
            delta = clipped[t] * (
                rewards[t] + discounts[t] * values_and_next[t + 1] - values_and_next[t]
            )
            total += weight * delta
        vs[s] = total
    next_vs = np.concatenate([vs[1:], bootstrap[None]])
    return vs, pg_clipped * (rewards + discounts * next_vs - values)


def random_inputs(seed, num_steps, *batch):
    rng = np.random.default_rng(seed)
    shape = (num_steps, *batch)
    done = rng.random(shape) < 0.15
    return dict(
        target_action_log_probs=np.log(rng.uniform(0.05, 1.0, shape)).astype(np.float32),
        behaviour_action_log_probs=np.log(rng.uniform(0.05, 1.0, shape)).astype(np.float32),
        discounts=np.where(done, 0.0, 0.97).astype(np.float32),
        rewards=rng.normal(size=shape).astype(np.float32),
        values=rng.normal(size=shape).astype(np.float32),
        bootstrap_value=rng.normal(size=batch).astype(np.float32),
    )


@pytest.mark.parametrize("num_steps, batch", [(1, (3,)), (2, (1,)), (20, (5,)), (7, (2, 3))])
@pytest.mark.parametrize(
    "rho_bar, pg_rho_bar, lambda_", [(1.0, 1.0, 1.0), (3.7, 2.2, 0.9), (None, None, 1.0)]
)
def test_equals_the_papers_double_sum(num_steps, batch, rho_bar, pg_rho_bar, lambda_):
    inputs = random_inputs(num_steps, num_steps, *batch)
    expected = paper_vtrace(
        inputs["target_action_log_probs"] - inputs["behaviour_action_log_probs"],
        inputs["discounts"],
        inputs["rewards"],
        inputs["values"],
        inputs["bootstrap_value"],
        rho_bar,
        pg_rho_bar,
        lambda_,
    )
    actual = vtrace.from_importance_weights(
        **inputs,
        clip_rho_threshold=rho_bar,
        clip_pg_rho_threshold=pg_rho_bar,
        lambda_=lambda_,
    )
    np.testing.assert_allclose(actual.vs, expected[0], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(actual.pg_advantages, expected[1], rtol=2e-5, atol=2e-5)
    assert actual.vs.dtype == actual.pg_advantages.dtype == tf.float32


def test_no_gradient_flows():
    inputs = {k: tf.constant(v) for k, v in random_inputs(0, 4, 2).items()}
    with tf.GradientTape() as tape:
        tape.watch(list(inputs.values()))
        returns = vtrace.from_importance_weights(**inputs)
        total = tf.reduce_sum(returns.vs) + tf.reduce_sum(returns.pg_advantages)
    assert all(g is None for g in tape.gradient(total, list(inputs.values())))


@pytest.mark.parametrize("name", ["discounts", "rewards", "values", "bootstrap_value"])
def test_a_stray_dimension_is_refused(name):
    """[time, batch, 1] against [time, batch] would broadcast without this check."""
    inputs = random_inputs(0, 4, 2)
    inputs[name] = inputs[name][..., None]
    with pytest.raises(ValueError, match=name):
        vtrace.from_importance_weights(**inputs)
