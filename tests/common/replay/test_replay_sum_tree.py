"""The sum-tree against plain cumulative sums."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from seed_rl.common.replay.sum_tree import SumTree

# Whole numbers: sums are exact in any order, so the naive answer must be met to the last bit.
_UPDATES = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 1 << 20)), max_size=60)


def naive_find(weights: np.ndarray, point: float) -> int:
    """The first leaf at which the cumulative sum passes `point`."""
    return int(np.searchsorted(np.cumsum(weights), point, side="right"))


@hypothesis.settings(deadline=None, derandomize=True)
@hypothesis.given(capacity=st.integers(1, 70), updates=_UPDATES, seed=st.integers(0, 99))
def test_agrees_with_cumulative_sums(capacity: int, updates: list, seed: int) -> None:
    """Guards `set`, `get`, `total` and `find`, for capacities that are powers of two and not."""
    tree, weights = SumTree(capacity), np.zeros(capacity)
    leaves = np.array([leaf % capacity for leaf, _ in updates], np.int64)
    values = np.array([value for _, value in updates], np.float64)
    tree.set(leaves, values)
    for leaf, value in zip(leaves, values, strict=True):
        weights[leaf] = value
    np.testing.assert_array_equal(tree.get(np.arange(capacity)), weights)
    assert tree.total == weights.sum()
    if weights.sum() > 0:
        fractions = np.random.default_rng(seed).integers(0, 1 << 20, 50) / (1 << 20)
        expected = [naive_find(weights, fraction * weights.sum()) for fraction in fractions]
        np.testing.assert_array_equal(tree.find(fractions), expected)


def test_sums_do_not_drift() -> None:
    """Guards against updating sums by differences, whose rounding errors pile up."""
    rng = np.random.default_rng(0)
    used, weights = SumTree(100), np.zeros(100)
    for _ in range(300):
        leaves = rng.integers(100, size=200)
        values = 10.0 ** rng.uniform(-12, 12, 200)
        used.set(leaves, values)
        for leaf, value in zip(leaves, values, strict=True):
            weights[leaf] = value
    fresh = SumTree(100)
    fresh.set(np.arange(100), weights)
    assert used.total == fresh.total
    used.set(np.arange(100), np.zeros(100))
    assert used.total == 0


def test_frequencies_are_proportional() -> None:
    """Guards the distribution: chi-square of 200,000 draws against the exact probabilities."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(0, 1, 1000) ** 4
    tree = SumTree(1000)
    tree.set(np.arange(1000), weights)
    counts = np.bincount(tree.find(rng.random(200_000)), minlength=1000)
    expected = 200_000 * weights / weights.sum()
    kept = expected >= 5
    chi_square = np.sum((counts - expected)[kept] ** 2 / expected[kept])
    degrees = kept.sum() - 1
    assert chi_square < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("zero", [0, 3, 6])
def test_never_finds_a_leaf_of_weight_zero(zero: int) -> None:
    """Guards the ends of intervals, where rounding might step onto a neighbour of weight 0."""
    weights = np.full(7, 0.1)
    weights[zero] = 0
    tree = SumTree(7)
    tree.set(np.arange(7), weights)
    ends = np.cumsum(weights) / weights.sum()
    near = [np.nextafter(ends, 0), ends, np.nextafter(ends, 1), [0, np.nextafter(1, 0)]]
    fractions = np.concatenate(near)
    found = tree.find(fractions[fractions < 1])
    assert zero not in found
    assert found.min() >= 0 and found.max() < 7


def test_rounding_never_leads_to_a_leaf_of_weight_zero() -> None:
    """Guards the walk where the point ends up past the last weight, because sums are rounded."""
    rng = np.random.default_rng(0)
    for weights in 10.0 ** rng.uniform(-18, 0, (2000, 4)):
        weights[3] = 0
        tree = SumTree(4)
        tree.set(np.arange(4), weights)
        assert tree.find(np.array([1 - 2**-52, 1 - 2**-53])).max() < 3


def test_tiny_and_huge_weights_together() -> None:
    """Guards the walk where a small weight vanishes in the sum beside a large one."""
    tree = SumTree(4)
    tree.set([0, 1, 3], [1e300, 1e-300, 1e300])
    found = tree.find(np.array([0.0, 0.49, 0.5, 0.99, np.nextafter(1, 0)]))
    np.testing.assert_array_equal(found, [0, 0, 3, 3, 3])


@pytest.mark.parametrize(
    ("leaves", "weights"),
    [([4], [1.0]), ([-1], [1.0]), ([0], [-1.0]), ([0], [np.nan]), ([0], [np.inf]), ([0, 1], [1.0])],
)
def test_refuses_what_would_corrupt_it(leaves: list, weights: list) -> None:
    """Guards the native code from leaves outside and weights that poison every sum."""
    tree = SumTree(4)
    with pytest.raises(ValueError):
        tree.set(leaves, weights)
    assert tree.total == 0


def test_refuses_to_find_among_nothing() -> None:
    """Guards against an answer where there is none."""
    with pytest.raises(ValueError, match="0"):
        SumTree(3).find([0.5])
