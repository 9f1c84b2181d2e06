"""Policy losses against their equations in NumPy, with masked actions and at the bounds."""

import math

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.policy_gradient.modules import policy_losses
from seed_rl.agents.policy_gradient.modules.logging_module import LoggingTape
from seed_rl.common.learner.coefficients import FixedCoefficient

SHAPE = (7, 5)


def batch(seed=0, spread=0.5):
    """(advantages, target and behaviour log probabilities, mask), with a quarter masked."""
    rng = np.random.default_rng(seed)
    advantages, target = (rng.normal(size=SHAPE).astype(np.float32) for _ in range(2))
    behaviour = target + spread * rng.normal(size=SHAPE).astype(np.float32)
    return advantages, target, behaviour, (rng.random(SHAPE) < 0.75).astype(np.float32)


def loss_and_gradient(loss, advantages, target, behaviour, mask=None):
    """(loss, its gradient by the target log probabilities)."""
    target = tf.constant(target)
    with tf.GradientTape() as tape:
        tape.watch(target)
        value = loss(tf.constant(advantages), target, tf.constant(behaviour), mask=mask)
    return value.numpy(), tape.gradient(value, target).numpy()


def numpy_weights(name, advantages, ratio, mask):
    """The weight of each action's log probability, one action at a time."""
    taken = [index for index in np.ndindex(SHAPE) if mask[index]]
    weights = np.zeros(SHAPE)
    mean = np.mean([advantages[i] for i in taken])
    deviation = np.std([advantages[i] for i in taken])
    for i in taken:
        a, rho = float(advantages[i]), float(ratio[i])
        if name == "pg":
            weights[i] = a
        elif name == "vtrace":
            weights[i] = a * min(rho, 1.1)
        elif name == "ppo":
            a = (a - mean) / deviation + 0.1
            clipped = (a > 0 and rho > 1.3) or (a < 0 and rho < 1 / 1.3)
            weights[i] = 0.0 if clipped else a * rho
        elif name == "awr":
            weights[i] = min(math.exp(a / 0.5), 3.0)
        elif name == "bc":
            weights[i] = 1.0
        elif name == "rpa":
            weights[i] = float(a >= 0)
    if name == "vmpo":
        half = sorted(taken, key=lambda i: -advantages[i])[: (len(taken) + 1) // 2]
        exps = {i: math.exp(advantages[i]) for i in half}  # Its initial temperature is 1.
        for i in half:
            weights[i] = exps[i] / sum(exps.values())
    return weights


LOSSES = {
    "pg": policy_losses.pg,
    "vtrace": lambda: policy_losses.vtrace(max_importance_weight=1.1),
    "ppo": lambda: policy_losses.ppo(0.3, normalize_advantages=True, advantage_offset=0.1),
    "awr": lambda: policy_losses.awr(beta=0.5, w_max=3.0),
    "bc": policy_losses.bc_logp,
    "rpa": policy_losses.repeat_positive_advantages,
    "vmpo": lambda: policy_losses.vmpo(0.1),
}


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("name", LOSSES)
def test_equals_numpy(name, masked):
    for seed in range(3):
        advantages, target, behaviour, mask = batch(seed)
        mask = mask if masked else np.ones_like(mask)
        weights = numpy_weights(name, advantages, np.exp(target - behaviour), mask)
        loss = LOSSES[name]()
        with LoggingTape(loss) as logs:
            _, gradient = loss_and_gradient(
                loss, advantages, target, behaviour, mask if masked else None
            )
        expected = -np.sum(weights * target) / mask.sum()
        assert logs["losses/policy"].numpy() == pytest.approx(expected, rel=1e-4, abs=1e-6)
        np.testing.assert_allclose(gradient, -weights / mask.sum(), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_actions_never_taken_leak_nothing(name):
    """Guards gradients against infinite or NaN values of masked actions."""
    advantages, target, behaviour, mask = batch()
    clean = loss_and_gradient(LOSSES[name](), advantages, target, behaviour, mask)
    out = mask == 0
    for bad in (np.nan, np.inf, -np.inf):
        dirty = [np.where(out, np.float32(bad), x) for x in (advantages, target, behaviour)]
        value, gradient = loss_and_gradient(LOSSES[name](), *dirty, mask)
        assert value == pytest.approx(clean[0], rel=1e-5)
        np.testing.assert_allclose(gradient, clean[1], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_taken_is_no_loss(name):
    advantages, target, behaviour, mask = batch()
    value, gradient = loss_and_gradient(LOSSES[name](), advantages, target, behaviour, 0 * mask)
    # V-MPO's temperature still moves, towards the bound of its KL.
    assert value == pytest.approx(0.1 if name == "vmpo" else 0.0)
    assert not gradient.any()


def test_ppo_gradient_is_that_of_the_clipped_surrogate():
    """Central differences of min(ratio A, clip(ratio) A), in double precision."""
    epsilon = 0.2
    advantages, target, behaviour, _ = batch(spread=0.4)
    ratio = np.exp(target - behaviour)
    bounds = np.array([1 / (1 + epsilon), 1 + epsilon])
    assert (ratio > bounds[1]).any() and (ratio < bounds[0]).any()
    _, gradient = loss_and_gradient(policy_losses.ppo(epsilon), advantages, target, behaviour)

    def surrogate(logs):
        ratio = np.exp(logs - behaviour)
        return -np.mean(np.minimum(ratio * advantages, np.clip(ratio, *bounds) * advantages))

    step = 1e-5
    for index in np.ndindex(SHAPE):
        shift = np.zeros(SHAPE)
        shift[index] = step
        logs = target.astype(np.float64)
        slope = (surrogate(logs + shift) - surrogate(logs - shift)) / (2 * step)
        assert gradient[index] == pytest.approx(slope, rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("side", [1, -1])
def test_ppo_at_the_bounds(side):
    """Guards symmetry in log space, and that an action may come back from beyond a bound."""
    bound = side * math.log(1.2)
    logs = np.float32([[bound * 0.999, bound * 1.001] * 2])
    advantages = np.float32([[side, side, -side, -side]])
    _, gradient = loss_and_gradient(policy_losses.ppo(0.2), advantages, logs, np.zeros_like(logs))
    assert (gradient != 0).tolist() == [[True, False, True, True]]


def test_an_excluded_action_is_finite():
    """Guards PPO when the policy now forbids an action that was taken (log probability -inf)."""
    excluded = np.float32([[-np.inf, -1.0]])
    advantages, behaviour = np.float32([[1.0, 2.0]]), np.float32([[-1.0, -1.0]])
    value, gradient = loss_and_gradient(policy_losses.ppo(0.2), advantages, excluded, behaviour)
    assert value == pytest.approx(1.0)
    np.testing.assert_allclose(gradient, [[0.0, -1.0]])


@pytest.mark.parametrize("count", [1, 6, 7])
def test_top_half(count):
    """At or above the median: of an odd number, the larger half."""
    advantages = np.random.default_rng(count).permutation(count).astype(np.float32)
    kept_advantages, kept = policy_losses.AdvantagePreprocessor(only_top_half=True)(advantages)
    np.testing.assert_array_equal(kept, advantages >= np.median(advantages))
    np.testing.assert_array_equal(kept_advantages, advantages * kept.numpy())


def test_preprocessing_is_in_order():
    """Normalized first, then halved, then the positive ones, then the offset."""
    advantages = np.float32([1, 2, 3, 10])
    preprocess = policy_losses.AdvantagePreprocessor(True, True, True, offset=-5.0)
    processed, kept = preprocess(advantages)
    np.testing.assert_array_equal(kept, [0, 0, 0, 1])
    normalized = (10 - 4) / np.std(advantages)
    np.testing.assert_allclose(processed, [0, 0, 0, normalized - 5], rtol=1e-5)


def vmpo_dual(temperature, advantages, bound):
    """Equation 4 of Song et al. 2020."""
    return temperature * (bound + np.log(np.mean(np.exp(advantages / temperature))))


def test_vmpo_temperature_descends_its_dual():
    """The gradient by the temperature is that of equation 4, by central differences."""
    advantages, target, behaviour, mask = batch()
    bound, temperature, step = 0.2, 1.0, 1e-4
    loss = policy_losses.vmpo(bound)
    parameter = next(iter(loss.trainable_variables))
    with tf.GradientTape() as tape:
        value = loss(tf.constant(advantages), target, behaviour, mask=mask)
    by_parameter = tape.gradient(value, parameter).numpy()

    taken = advantages[mask > 0].astype(np.float64)
    half = np.sort(taken)[len(taken) // 2 :]
    up, down = (vmpo_dual(temperature + d, half, bound) for d in (step, -step))
    # The temperature is exp(10 * parameter).
    assert by_parameter == pytest.approx(10.0 * temperature * (up - down) / (2 * step), rel=1e-3)


def test_vmpo_temperature_settles_where_the_kl_is_at_its_bound():
    advantages, target, behaviour, _ = batch()
    loss = policy_losses.vmpo(0.05)
    optimizer = tf.keras.optimizers.SGD(0.01)

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape, LoggingTape(loss) as logs:
            value = loss(advantages, target, behaviour)
        optimizer.apply(tape.gradient(value, loss.trainable_variables), loss.trainable_variables)
        return logs["policy/temperature_kl"]

    first, *_, last = (float(step()) for _ in range(100))
    assert first > 0.1 and last == pytest.approx(0.05, abs=1e-3)


def test_options_without_what_they_need():
    for options, text in (
        (dict(max_importance_weight=1.0), "needs use_importance_weights=True"),
        (dict(temperature=FixedCoefficient(1.0)), "needs an advantage_transformation"),
    ):
        with pytest.raises(ValueError, match=text):
            policy_losses.GeneralizedAdvantagePolicyLoss(**options)


def test_softmax_over_all_dimensions():
    weights = policy_losses.softmax_all_dims(tf.constant([[0.0, math.log(2)], [math.log(5), 0.0]]))
    np.testing.assert_allclose(weights, np.array([[1, 2], [5, 1]]) / 9, rtol=1e-6)
