"""Running statistics against NumPy, and in float32 at its limits."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.normalization import running_statistics as rs

SIZE = 3
TRACKERS = {
    "ema": lambda: rs.EMAMeanStd(0.25),
    "average": rs.AverageMeanStd,
    "two_level": lambda: rs.TwoLevelAverageMeanStd(buffer_size=3),
}
EXACT = ["average", "two_level"]


def make(name, size=SIZE):
    tracker = TRACKERS[name]()
    tracker.init(size)
    return tracker


def mean_std(tracker):
    return tuple(value.numpy() for value in tracker.get_mean_std())


@pytest.mark.parametrize("name", TRACKERS)
def test_a_fresh_tracker_changes_nothing(name):
    tracker = make(name)
    mean, std = tracker.get_mean_std()
    x = tf.constant([[1.0, -2.0, 3.0]])
    np.testing.assert_array_equal(tracker.normalize(x), x)
    assert not tracker.trainable_variables
    tracker.update([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]])  # Changes no value from before.
    np.testing.assert_array_equal(mean, np.zeros(SIZE, np.float32))
    np.testing.assert_array_equal(std, np.ones(SIZE, np.float32))


@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
@pytest.mark.parametrize("name", EXACT)
def test_averages_are_exact_in_float32(name, offset):
    """Guards cancellation: sums of squares around 1e6 would lose a deviation of 1."""
    tracker = make(name)
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(n, 2, SIZE)) + offset).astype(np.float32) for n in (1, 7, 2, 30)]
    for batch in batches:
        tracker.update(batch)
    samples = np.concatenate([batch.reshape(-1, SIZE) for batch in batches]).astype(np.float64)
    mean, std = mean_std(tracker)
    np.testing.assert_allclose(mean, samples.mean(0), rtol=2e-7, atol=1e-6)
    np.testing.assert_allclose(std, samples.std(0), rtol=0.02 if abs(offset) > 1e5 else 1e-3)


def test_moving_averages_are_those_of_both_moments():
    tracker = make("ema")
    rng = np.random.default_rng(0)
    first, second = np.zeros(SIZE), np.ones(SIZE)
    for scale in (1.0, 5.0, 0.1):
        batch = scale * rng.normal(size=(4, 5, SIZE)) + scale
        first += 0.25 * (batch.mean((0, 1)) - first)
        second += 0.25 * (np.square(batch).mean((0, 1)) - second)
        tracker.update(batch)
    mean, std = mean_std(tracker)
    np.testing.assert_allclose(mean, first, rtol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(second - first**2), rtol=1e-5)


@pytest.mark.parametrize("name", EXACT)
def test_a_constant_is_normalized_to_zero(name):
    """An error of rounding in the mean, divided by the smallest deviation, would be huge."""
    tracker = make(name)
    constant = np.float32([0.1, 10000.1, -1e7])
    for size in (7, 1, 100, 3):
        tracker.update(np.broadcast_to(constant, (size, SIZE)))
    mean, std = mean_std(tracker)
    np.testing.assert_array_equal(mean, constant)
    np.testing.assert_array_equal(std, np.float32([1e-6] * SIZE))
    np.testing.assert_array_equal(tracker.normalize(constant), [0.0] * SIZE)


@pytest.mark.parametrize("name", TRACKERS)
def test_samples_that_are_not_finite_are_left_out(name):
    tracker, clean = make(name), make(name)
    rng = np.random.default_rng(0)
    good = rng.normal(size=(6, SIZE)).astype(np.float32)
    spoiled = np.concatenate([good, np.float32([[np.nan, np.inf, -np.inf], [1e30, -1e38, 3e15]])])
    nothing = np.full((4, SIZE), np.nan, np.float32)
    for batch in (nothing, spoiled, nothing, spoiled[::-1]):
        tracker.update(batch)
    for batch in (good, good[::-1]):
        clean.update(batch)
    for one, other in zip(mean_std(tracker), mean_std(clean), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_the_deviation_is_bounded():
    tracker = rs.AverageMeanStd(std_min_value=0.5, std_max_value=2.0)
    tracker.init(2)
    tracker.update([[1.0, 100.0], [1.0, -100.0]])
    np.testing.assert_array_equal(tracker.get_mean_std()[1], [0.5, 2.0])


def test_normalizing_and_back():
    tracker = make("average")
    rng = np.random.default_rng(0)
    data = (rng.normal(size=(50, SIZE)) * [1, 10, 100] + [5, 0, -7]).astype(np.float32)
    tracker.update(data)
    normalized = tracker.normalize(data).numpy()
    np.testing.assert_allclose(normalized.mean(0), [0] * SIZE, atol=1e-5)
    np.testing.assert_allclose(normalized.std(0), [1] * SIZE, rtol=1e-5)
    np.testing.assert_allclose(tracker.unnormalize(normalized), data, rtol=1e-5, atol=1e-5)


def test_series_are_merged_and_reset_if_asked_to():
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=(n, SIZE)).astype(np.float32) + n for n in (5, 20))
    left, right = make("average"), make("average")
    left.update(one)
    right.update(other)
    before = mean_std(left)
    left.merge(right, tf.constant(0.0))
    left.reset(0.0)
    np.testing.assert_array_equal(mean_std(left), before)
    left.merge(right)
    both = np.concatenate([one, other])
    np.testing.assert_allclose(mean_std(left), [both.mean(0), both.std(0)], rtol=1e-5)
    np.testing.assert_array_equal(left.observation_count, [25.0] * SIZE)
    assert int(left.update_count) == 2
    left.reset()
    np.testing.assert_array_equal(mean_std(left), mean_std(make("average")))
    assert int(left.update_count) == 0


def test_two_levels_keep_small_increments():
    """After 2^25 samples float32 no longer counts single ones, nor moves the mean by theirs."""
    one_level, two_levels = make("average", 1), rs.TwoLevelAverageMeanStd(buffer_size=1000)
    two_levels.init(1)
    for tracker in (one_level, two_levels.total):
        tracker.observation_count.assign([2.0**25])
        tracker.summed_variance.assign([2.0**25])
    updates = 2000

    @tf.function
    def run(tracker):
        for _ in tf.range(updates):
            tracker.update(tf.constant([[1000.0]]))

    run(one_level)
    run(two_levels)
    assert float(one_level.observation_count[0]) == 2.0**25
    assert float(two_levels.total.observation_count[0]) == 2.0**25 + updates
    expected = 1000.0 * updates / (2.0**25 + updates)
    assert float(two_levels.get_mean_std()[0][0]) == pytest.approx(expected, rel=1e-5)


def test_fixed_statistics_do_not_move():
    tracker = rs.FixedMeanStd(2.0, 4.0)
    tracker.init(2)
    tracker.update([[100.0, 200.0]])
    np.testing.assert_array_equal(tracker.normalize([[6.0, -2.0]]), [[1.0, -1.0]])
    assert not tracker.variables


@pytest.mark.parametrize("name", TRACKERS)
def test_the_size_must_be_known_and_stay(name):
    tracker = TRACKERS[name]()
    with pytest.raises(ValueError, match="init"):
        tracker.update([[1.0]])
    tracker.init(1)
    tracker.update([[5.0], [6.0]])
    before = mean_std(tracker)
    tracker.init(1)
    np.testing.assert_array_equal(mean_std(tracker), before)
    with pytest.raises(ValueError, match="1 elements, not 2"):
        tracker.init(2)


def test_beta_is_a_weight():
    with pytest.raises(ValueError, match="beta"):
        rs.EMAMeanStd(0.0)
