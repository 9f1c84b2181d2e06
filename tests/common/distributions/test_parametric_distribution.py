"""Action distributions against NumPy formulas, numerical integration and sampling."""

import itertools
import math

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from scipy.integrate import trapezoid

from seed_rl.common import parametric_distribution as pd
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.distributions.continuous import log_normal_tail, mean_std
from seed_rl.common.errors import UserError


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def random_params(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# ---- Choices -------------------------------------------------------------------------------------


def test_a_standard_deviation_below_its_minimum_is_refused():
    """Guards users from a domain error of the logarithm of their difference."""
    for std in (0.0, 0.2):
        with pytest.raises(UserError, match="--action_std_for_zero_param=.* must be above"):
            ContinuousDistributionConfig(action_min_gaussian_std=0.2, action_std_for_zero_param=std)


def test_categorical_equals_numpy():
    dist = pd.categorical_distribution(5, tf.int64)
    a, b = random_params(0, 2, 3, 4, 5)
    p, q = softmax(a), softmax(b)
    actions = np.random.default_rng(1).integers(0, 5, size=(3, 4))
    picked = np.take_along_axis(p, actions[..., None], -1)[..., 0]
    np.testing.assert_allclose(dist.log_prob(a, actions), np.log(picked), rtol=1e-5)
    for fewer in (actions[0], actions[:, :1], actions[1, 2]):  # Broadcast to the parameters.
        expected = dist.log_prob(a, np.broadcast_to(fewer, (3, 4)))
        np.testing.assert_allclose(dist.log_prob(a, fewer), expected)
    assert dist.log_prob(a[0, 0], actions).shape == (3, 4)
    np.testing.assert_allclose(dist.entropy(a), -(p * np.log(p)).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(
        dist.kl_divergence(a, b), (p * np.log(p / q)).sum(-1), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(dist.mode(a), p.argmax(-1))
    assert dist.param_size == 5
    assert mean_std(dist(a)) is None


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint8, tf.int8])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_categorical_samples_have_the_actions_type_and_the_batchs_shape(dtype, batch):
    dist = pd.categorical_distribution(4, dtype)
    sample = dist.sample(tf.zeros((*batch, 4)))
    assert sample.dtype == dtype and sample.shape == batch
    assert dist.mode(tf.zeros((*batch, 4))).dtype == dtype


def test_categorical_samples_follow_the_probabilities():
    tf.random.set_seed(0)
    logits = np.log(np.array([0.1, 0.2, 0.7], np.float32))
    actions = pd.categorical_distribution(3, tf.int32).sample(tf.tile(logits[None], [20000, 1]))
    frequencies = np.bincount(actions.numpy(), minlength=3) / 20000
    # Three standard errors of the least certain frequency.
    np.testing.assert_allclose(frequencies, [0.1, 0.2, 0.7], atol=3 * math.sqrt(0.21 / 20000))


def test_a_first_choice_other_than_zero_is_honoured():
    dist = pd.get_parametric_distribution_for_action_space(spaces.Discrete(3, start=-1))
    params = tf.constant([[9.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    np.testing.assert_array_equal(dist.mode(params), [-1, 1])
    plain = pd.categorical_distribution(3, tf.int64)
    np.testing.assert_allclose(dist.log_prob(params, [-1, 1]), plain.log_prob(params, [0, 2]))
    np.testing.assert_array_equal(dist.action_features([-1, 1]), [[1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize("dtype", [tf.int32, tf.uint8])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_choices_exist_whatever_the_logits(value, dtype):
    """Guards the actors of environments that report NaN, and training: both refuse an invalid
    choice.
    """
    params = tf.constant([[value] * 3, [0.0, value, 0.0], [0.0, 0.0, 1e9]])
    for dist, first, logits in (
        (pd.categorical_distribution(3, dtype, start=5), 5, params),
        (pd.multi_categorical_distribution(2, 3, dtype), 0, tf.tile(params, [1, 2])),
    ):
        for choose in (dist.sample, dist.mode):
            actions = np.array([choose(logits) for _ in range(50)])
            assert actions.min() >= first and actions.max() <= first + 2
            assert (actions[:, 2] == first + 2).all()
            dist.log_prob(logits, tf.constant(actions[0]))


# ---- Vectors -------------------------------------------------------------------------------------


def gaussian(x, loc, scale):
    return np.exp(-0.5 * ((x - loc) / scale) ** 2) / (scale * math.sqrt(2 * math.pi))


@pytest.mark.parametrize("loc, std_param", [(0.0, 0.0), (0.7, -1.0), (-1.5, 1.0), (4.0, 0.0)])
def test_tanh_density_integrates_to_one_and_gives_the_entropy(loc, std_param):
    """Covers the density inside, the flat tails outside 0.999, and the entropy estimate."""
    tf.random.set_seed(1)
    dist = pd.normal_tanh_distribution(1)
    params = np.array([loc, std_param], np.float32)
    inside = np.tanh(np.linspace(-math.atanh(0.999), math.atanh(0.999), 20001))
    grid = np.concatenate([np.linspace(-1, -0.999, 3)[:-1], inside, np.linspace(0.999, 1, 3)[1:]])
    log_density = dist.log_prob(
        tf.tile(params[None], [len(grid), 1]), grid[:, None].astype(np.float32)
    ).numpy()
    density = np.exp(log_density.astype(np.float64))
    # The tails are flat but jump at the thresholds, so they are integrated as rectangles.
    mass = trapezoid(density[2:-2], inside) + 0.001 * (density[0] + density[-1])
    assert mass == pytest.approx(1.0, abs=2e-3)

    samples = tf.tile(params[None], [40000, 1])
    entropies = dist.entropy(samples).numpy()
    scale = math.log1p(math.exp(std_param)) + 1e-3
    x = np.linspace(loc - 8 * scale, loc + 8 * scale, 20001)
    log_slope = 2 * (math.log(2) - x - np.logaddexp(0, -2 * x))
    exact = 0.5 * math.log(2 * math.pi * math.e * scale**2) + trapezoid(
        gaussian(x, loc, scale) * log_slope, x
    )
    assert entropies.mean() == pytest.approx(exact, abs=float(4 * entropies.std() / 200))


def test_tanh_density_equals_change_of_variables():
    dist = pd.normal_tanh_distribution(2)
    params = np.array([[0.3, -0.4, 0.1, -0.2]], np.float32)
    action = np.array([[0.8, -0.97]], np.float32)
    scale = np.log1p(np.exp(params[0, 2:])) + 1e-3
    density = gaussian(np.arctanh(action), params[:, :2], scale) / (1 - action**2)
    np.testing.assert_allclose(dist.log_prob(params, action), np.log(density).sum(-1), rtol=1e-4)


def test_saturated_tanh_actions_have_finite_gradients():
    """float32 tanh reaches 1 exactly, where atanh is infinite."""
    dist = pd.normal_tanh_distribution(2)
    params = tf.Variable([[30.0, -30.0, -3.0, -3.0], [-30.0, 30.0, -3.0, -3.0]])
    with tf.GradientTape() as tape:
        log_prob = dist.log_prob(params, tf.constant([[1.0, -1.0], [1.0, -1.0]]))
    assert np.isfinite(log_prob).all()
    assert np.isfinite(tape.gradient(log_prob, params)).all()


def test_normal_tail_is_accurate_where_float32_underflows():
    # log P(X > x), to 10 digits (Abramowitz and Stegun, table 26.2, extended by mpmath).
    known = {0.0: -0.6931471806, 5.0: -15.06499839, 5.5: -17.77937635, 10.0: -53.23128515}
    actual = log_normal_tail(tf.constant(list(known)))
    np.testing.assert_allclose(actual, list(known.values()), rtol=2e-5)


def test_divergence_of_tanh_normals():
    """Against sampling: mean of log p - log q over samples of p, in the normals' own space."""
    dist = pd.normal_tanh_distribution(2)
    a, b = random_params(5, 2, 1, 4) * 0.5
    exact = dist.kl_divergence(a, b).numpy()[0]
    rng = np.random.default_rng(0)
    (loc_a, std_a), (loc_b, std_b) = ((p[0, :2], np.log1p(np.exp(p[0, 2:])) + 1e-3) for p in (a, b))
    x = loc_a + std_a * rng.normal(size=(100000, 2))
    terms = np.log(gaussian(x, loc_a, std_a) / gaussian(x, loc_b, std_b)).sum(-1)
    assert exact == pytest.approx(terms.mean(), abs=4 * terms.std() / math.sqrt(100000))
    np.testing.assert_allclose(mean_std(dist(a))[0], std_a.mean(), rtol=1e-5)


def test_clipped_normal_is_a_censored_normal():
    tf.random.set_seed(0)
    dist = pd.normal_clipped_distribution(1)
    params = np.tile(np.array([[0.9, 0.0]], np.float32), [1000, 1])
    samples = dist.sample(params).numpy()
    assert samples.max() == 1.0 and samples.min() >= -1.0 and np.unique(samples).size > 100
    scale = math.log(2) + 1e-3
    for action, probability in (
        (0.3, gaussian(0.3, 0.9, scale)),
        (1.0, 0.5 * math.erfc((1.0 - 0.9) / scale / math.sqrt(2.0))),
        (-1.0, 0.5 * math.erfc((1.0 + 0.9) / scale / math.sqrt(2.0))),
    ):
        np.testing.assert_allclose(
            dist.log_prob(params[:1], [[action]]), [math.log(probability)], rtol=1e-4
        )
    np.testing.assert_allclose(dist.mode([[3.0, 0.0]]), [[1.0]])


def test_the_score_of_a_clipped_normal_has_no_bias():
    """Else any baseline that is off would push the mean, although no action is better."""
    tf.random.set_seed(0)
    dist = pd.normal_clipped_distribution(1)
    params = tf.Variable(np.tile(np.array([[0.9, 0.0]], np.float32), [100_000, 1]))
    actions = dist.sample(params)
    with tf.GradientTape() as tape:
        log_prob = dist.log_prob(params, actions)
    score = tape.gradient(log_prob, params).numpy()
    error = score.std(0) / math.sqrt(len(score))
    assert np.all(np.abs(score.mean(0)) < 4 * error)


def test_samples_are_reparametrized():
    """SAC differentiates through actions; choices cannot be."""
    params = tf.Variable([[0.1, 0.2, 0.3, 0.4]])
    with tf.GradientTape() as tape:
        action = pd.normal_tanh_distribution(2).sample(params)
    assert np.all(tape.gradient(action, params).numpy() != 0)
    assert pd.normal_tanh_distribution(2).reparametrizable
    assert not pd.categorical_distribution(2, tf.int32).reparametrizable


def test_deterministic_tanh():
    dist = pd.deterministic_tanh_distribution(2)
    params = tf.constant([[0.5, -3.0]])
    np.testing.assert_allclose(dist.sample(params), np.tanh(params), rtol=1e-6)
    np.testing.assert_array_equal(dist.log_prob(params, dist.mode(params)), [0.0])
    np.testing.assert_array_equal(dist.log_prob(params, [[0.0, 0.0]]), [-math.inf])
    np.testing.assert_array_equal(dist.entropy(params), [0.0])


@pytest.mark.parametrize("make", [pd.softplus_std_fn, pd.safe_exp_std_fn])
def test_std_functions_hold_their_anchor_and_bound(make):
    fn = make(std_for_zero_param=0.6, min_std=0.01)
    np.testing.assert_allclose(fn(tf.constant(0.0)), 0.6, rtol=1e-5)
    values = fn(tf.constant([-1e4, -5.0, 0.0, 5.0, 1e4])).numpy()
    assert np.isfinite(values).all() and (values >= 0.01).all() and (np.diff(values) >= 0).all()


# ---- Mixed spaces --------------------------------------------------------------------------------


def test_joint_adds_up_its_parts():
    choice, vector = pd.categorical_distribution(3, tf.int32), pd.normal_tanh_distribution(2)
    joint = pd.joint_distribution([choice, vector])
    assert joint.param_size == 7
    a, b = random_params(7, 2, 5, 7)
    actions = joint.sample(a)
    assert actions.shape == (5, 3) and actions.dtype == tf.float32
    np.testing.assert_allclose(
        joint.log_prob(a, actions),
        choice.log_prob(a[:, :3], tf.cast(actions[:, 0], tf.int32))
        + vector.log_prob(a[:, 3:], actions[:, 1:]),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        joint.kl_divergence(a, b),
        choice.kl_divergence(a[:, :3], b[:, :3]) + vector.kl_divergence(a[:, 3:], b[:, 3:]),
        rtol=1e-5,
    )


@pytest.mark.parametrize("sizes", [(2, 3, 4), (3, 3, 3)], ids=str)
def test_several_choices_are_independent(sizes):
    """Enumerates all joint actions, of choices of different or equal sizes."""
    dist = pd.get_parametric_distribution_for_action_space(spaces.MultiDiscrete(sizes))
    a, b = random_params(2, 2, 1, dist.param_size)
    every = np.array(list(itertools.product(*map(range, sizes))))
    p, q = (dist.log_prob(params, every).numpy().astype(np.float64) for params in (a, b))
    ends = np.cumsum(sizes)[:-1]
    parts = [softmax(part)[0] for part in np.split(a, ends, axis=-1)]
    expected = [np.prod([part[i] for part, i in zip(parts, e, strict=True)]) for e in every]
    np.testing.assert_allclose(np.exp(p), expected, rtol=1e-5)
    np.testing.assert_allclose(dist.entropy(a), [-(np.exp(p) * p).sum()], rtol=1e-5)
    np.testing.assert_allclose(dist.kl_divergence(a, b), [(np.exp(p) * (p - q)).sum()], rtol=1e-4)
    features = np.concatenate([np.eye(n)[every[:, i]] for i, n in enumerate(sizes)], axis=1)
    np.testing.assert_array_equal(dist.action_features(every), features)


UNIT_BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)
ALL_SPACES = [
    spaces.Discrete(4),
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([3, 3]),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiBinary(3),
    UNIT_BOX,
    spaces.Tuple([spaces.Discrete(3), UNIT_BOX, spaces.MultiDiscrete([2, 5])]),
    spaces.Dict(steer=UNIT_BOX, button=spaces.Dict(b=spaces.Discrete(2), a=spaces.Discrete(3))),
]


@pytest.mark.parametrize("space", ALL_SPACES, ids=str)
def test_samples_and_modes_are_actions_of_the_space(space: gymnasium.Space):
    tf.random.set_seed(0)
    dist = pd.get_parametric_distribution_for_action_space(space)
    params = random_params(0, 3, 2, dist.param_size)
    for actions in (dist.sample(params), dist.mode(params)):
        for t, b in itertools.product(range(3), range(2)):
            action = tf.nest.map_structure(lambda x, t=t, b=b: x.numpy()[t, b], actions)
            assert space.contains(action), action
        assert dist.log_prob(params, actions).shape == (3, 2)
        features = dist.action_features(actions)
        assert features.dtype == tf.float32 and features.shape[:2] == (3, 2)
        assert features.shape[2] is not None
    assert dist.entropy(params).shape == (3, 2)
    assert dist.kl_divergence(params, params).shape == (3, 2)


@pytest.mark.parametrize("space", ALL_SPACES, ids=str)
def test_works_in_a_graph_with_unknown_batch(space):
    """Inference runs with a leading dimension that changes from call to call."""
    dist = pd.get_parametric_distribution_for_action_space(space)

    @tf.function(input_signature=[tf.TensorSpec([None, dist.param_size], tf.float32)])
    def act(params):
        actions = dist.sample(params)
        return dist.log_prob(params, actions), dist.entropy(params), dist.action_features(actions)

    for batch in (1, 4):
        log_prob, entropy, features = act(tf.zeros([batch, dist.param_size]))
        assert log_prob.shape == entropy.shape == (batch,) and features.shape[0] == batch
    features = act.get_concrete_function().structured_outputs[2]
    assert features.shape[1] is not None, "networks are built from the width of the features"


@pytest.mark.parametrize(
    "space, fix",
    [
        (spaces.Box(0.0, 1.0, (2,)), "UniformBoundActionSpaceWrapper"),
        (spaces.Box(-1.0, 1.0, (2, 2)), "flatten"),
        (spaces.Text(3), "Supported are"),
        (spaces.Box(-1, 1, (2,), np.int32), "Box of floats .* use MultiDiscrete"),
        (spaces.Box(-np.inf, 1, (2,)), "with bounds, not Box.* Declare the smallest"),
    ],
)
def test_other_spaces_are_refused_with_the_fix(space, fix):
    with pytest.raises(UserError, match=fix):
        pd.get_parametric_distribution_for_action_space(space)


def test_continuous_config_is_used():
    config = pd.continuous_action_config(0.01, "safe_exp", 0.5, "ClippedIdentity")
    dist = pd.get_parametric_distribution_for_action_space(UNIT_BOX, config)
    made = dist(tf.zeros([1, 4]))
    assert isinstance(made, pd.ClippedNormal)
    np.testing.assert_allclose(made.scale, [[0.5, 0.5]], rtol=1e-5)
