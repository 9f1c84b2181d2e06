"""Drawing by priority (the native sum-tree) against plain cumulative sums."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from seed_rl.common.replay.specs import FieldSpec, Layout
from seed_rl.common.replay.storage import UnrollStorage

# Whole numbers: sums are exact in any order, so draws must agree to the last bit.
_UPDATES = st.lists(st.tuples(st.integers(0, 999), st.integers(0, 1 << 20)), max_size=60)


def full_storage(priorities: np.ndarray) -> UnrollStorage:
    """A storage of as many unrolls as priorities, so that keys and slots are equal."""
    size = len(priorities)
    storage = UnrollStorage(Layout(FieldSpec((), np.int64, time=False)), size)
    storage.insert(np.arange(size), np.asarray(priorities, np.float64))
    return storage


@hypothesis.settings(deadline=None, derandomize=True)
@hypothesis.given(size=st.integers(1, 70), updates=_UPDATES, seed=st.integers(0, 99))
def test_agrees_with_cumulative_sums(size: int, updates: list, seed: int) -> None:
    """Guards the tree, for capacities that are powers of two and others."""
    storage, priorities = full_storage(np.zeros(size)), np.zeros(size)
    keys = np.array([key % size for key, _ in updates], np.int64)
    values = np.array([value for _, value in updates], np.float64)
    storage.update_priorities(keys, values)
    for key, value in zip(keys, values, strict=True):
        priorities[key] = value
    np.testing.assert_array_equal(storage.snapshot().priorities, priorities)
    assert storage.stats().total_priority == priorities.sum()
    if priorities.sum() > 0:
        fractions = np.random.default_rng(seed).integers(0, 1 << 20, 50) / (1 << 20)
        points = fractions * priorities.sum()
        expected = np.searchsorted(np.cumsum(priorities), points, side="right")
        np.testing.assert_array_equal(storage.draw(fractions)[1], expected)


def test_sums_do_not_drift() -> None:
    """Guards against updating sums by differences, whose rounding errors accumulate."""
    rng = np.random.default_rng(0)
    used, priorities = full_storage(np.zeros(100)), np.zeros(100)
    for _ in range(300):
        keys = rng.integers(100, size=200)
        values = 10.0 ** rng.uniform(-12, 12, 200)
        used.update_priorities(keys, values)
        for key, value in zip(keys, values, strict=True):
            priorities[key] = value
    assert used.stats().total_priority == full_storage(priorities).stats().total_priority
    used.update_priorities(np.arange(100), np.zeros(100))
    assert used.stats().total_priority == 0


@pytest.mark.parametrize("zero", [0, 3, 6])
def test_never_draws_a_priority_of_zero(zero: int) -> None:
    """Guards the ends of intervals, where rounding might step onto a neighbour of priority 0."""
    priorities = np.full(7, 0.1)
    priorities[zero] = 0
    ends = np.cumsum(priorities) / priorities.sum()
    near = [np.nextafter(ends, 0), ends, np.nextafter(ends, 1), [0, np.nextafter(1, 0)]]
    fractions = np.concatenate(near)
    keys = full_storage(priorities).draw(fractions[fractions < 1])[1]
    assert zero not in keys
    assert keys.min() >= 0 and keys.max() < 7


def test_rounding_never_leads_to_a_priority_of_zero() -> None:
    """Guards the walk where the point ends up past the last priority, because sums are rounded."""
    rng = np.random.default_rng(0)
    storage = full_storage(np.zeros(4))
    for priorities in 10.0 ** rng.uniform(-18, 0, (2000, 4)):
        priorities[3] = 0
        storage.update_priorities(np.arange(4), priorities)
        assert storage.draw(np.array([1 - 2**-52, 1 - 2**-53]))[1].max() < 3


def test_tiny_and_huge_priorities_together() -> None:
    """Guards the walk where a small priority vanishes in the sum with a large one."""
    storage = full_storage(np.array([1e300, 1e-300, 0, 1e300]))
    keys = storage.draw(np.array([0.0, 0.49, 0.5, 0.99, np.nextafter(1, 0)]))[1]
    np.testing.assert_array_equal(keys, [0, 0, 3, 3, 3])
