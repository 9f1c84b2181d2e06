"""PrioritizedReplay: distribution, importance weights, back-pressure."""

import threading
from typing import Any

import numpy as np
import pytest

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.replay.rate_limiter import ReplayClosed
from seed_rl.common.replay.replay import PrioritizedReplay
from seed_rl.common.replay.specs import FieldSpec, unroll_specs

SPECS = {"x": FieldSpec((2,), np.int64), "state": FieldSpec((3,), np.float32, time=False)}


def new_replay(**options: Any) -> PrioritizedReplay:
    defaults = {"replay_buffer_size": 100, "replay_buffer_min_size": 1, "replay_ratio": 0.0}
    return PrioritizedReplay(ReplayConfig(**{**defaults, **options}), SPECS, seed=0)


def unrolls(numbers: Any) -> dict[str, np.ndarray]:
    """Time-major unrolls that carry a number each."""
    numbers = np.asarray(numbers)
    return {
        "x": np.stack([numbers, -numbers]),
        "state": np.repeat(numbers[:, None], 3, axis=1).astype(np.float32),
    }


def fill(replay: PrioritizedReplay, priorities: Any) -> None:
    replay.insert(unrolls(np.arange(len(priorities))), priorities)


def chi_square_is_small(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Whether counts fit probabilities, at about four standard deviations."""
    expected = counts.sum() * probabilities
    kept = expected > 0
    statistic = np.sum((counts - expected)[kept] ** 2 / expected[kept])
    degrees = kept.sum() - 1
    return not counts[~kept].any() and statistic < degrees + 4 * np.sqrt(2 * degrees)


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.parametrize("exponent", [0.0, 0.9])
def test_frequencies(exponent: float, stratified: bool) -> None:
    """Guards P(i) = p_i ** a / sum, after wrap-around and changed priorities, by chi-square; and
    the weights (N * P) ** -beta, whose unit does not depend on what else is in the sample.
    """
    replay = new_replay(
        replay_buffer_size=70,
        priority_exponent=exponent,
        replay_stratified=stratified,
        importance_sampling_exponent=0.6,
    )
    rng = np.random.default_rng(3)
    priorities = rng.uniform(0, 5, 150)
    fill(replay, priorities)
    changed = np.arange(60, 150, 7)
    priorities[changed] = rng.uniform(0, 20, len(changed)) * (changed % 2)
    replay.update_priorities(changed, priorities[changed])
    priorities = priorities[80:]
    expected = priorities**exponent / np.sum(priorities**exponent)
    counts = np.zeros(70)
    for _ in range(600):
        sample = replay.sample(64)
        np.add.at(counts, sample.keys - 80, 1)
        weights = (70 * expected[sample.keys - 80]) ** -0.6
        np.testing.assert_allclose(sample.importance_weights, weights, rtol=1e-6)
    assert sample.importance_weights.dtype == np.float32
    assert chi_square_is_small(counts, expected)


def test_stratified_batches_cover_the_whole_range() -> None:
    """Guards stratification: with equal priorities, a batch of N takes every unroll once."""
    replay = new_replay(replay_stratified=True)
    fill(replay, np.ones(64))
    for _ in range(20):
        assert sorted(replay.sample(64).keys) == list(range(64))


def test_priorities_of_zero() -> None:
    """Guards both: never sampled beside others, and sampling continues when all are 0."""
    replay = new_replay()
    fill(replay, [0.0, 1.0, 0.0])
    assert set(replay.sample(100).keys) == {1}
    replay.update_priorities([1], [0.0])
    assert set(replay.sample(100).keys) == {0, 1, 2}


def test_exponent_may_change() -> None:
    """Guards `set_priority_exponent`: it applies to the unrolls that are there already."""
    replay = new_replay(priority_exponent=1.0, importance_sampling_exponent=1.0)

    def check(probabilities: Any) -> None:
        sample, n = replay.sample(50), len(probabilities)
        expected = 1 / (n * np.array(probabilities)[sample.keys])
        np.testing.assert_allclose(sample.importance_weights, expected, rtol=1e-6)

    fill(replay, [1.0, 4.0])
    check([0.2, 0.8])
    replay.storage.set_priority_exponent(0.5)
    check([1 / 3, 2 / 3])
    replay.insert(unrolls([2]), [9.0])
    check([1 / 6, 2 / 6, 3 / 6])


def test_values_belong_to_their_keys() -> None:
    """Guards the pairing of unrolls, keys and ages."""
    replay = new_replay()
    fill(replay, np.ones(30))
    sample = replay.sample(16)
    np.testing.assert_array_equal(sample.unrolls["x"], np.stack([sample.keys, -sample.keys]))
    np.testing.assert_array_equal(sample.unrolls["state"][:, 1], sample.keys)
    np.testing.assert_array_equal(sample.ages, 29 - sample.keys)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_bad_priorities_change_nothing(bad: float) -> None:
    """Guards the tree from the NaN of a diverged network: one would poison every sum."""
    replay = new_replay()
    fill(replay, [1.0, 2.0])
    with pytest.raises(ValueError, match="priorities must be finite"):
        replay.update_priorities([0, 1], [3.0, bad])
    with pytest.raises(ValueError, match="priorities must be finite"):
        replay.insert(unrolls([5]), [bad])
    with pytest.raises(ValueError, match="priorities must have shape"):
        replay.insert(unrolls([5]), [1.0, 2.0])
    assert len(replay) == 2 and replay.stats().inserted == 2
    np.testing.assert_array_equal(replay.storage.snapshot().priorities, [1.0, 2.0])


def test_same_seed_same_batches() -> None:
    """Guards repeatability."""
    one, other = new_replay(), new_replay()
    fill(one, np.arange(50))
    fill(other, np.arange(50))
    np.testing.assert_array_equal(one.sample(32).keys, other.sample(32).keys)


def test_statistics() -> None:
    """Guards the numbers that go to logs."""
    replay = new_replay(replay_buffer_size=20, priority_exponent=1.0)
    fill(replay, np.full(30, 2.0))
    for _ in range(3):
        replay.sample(5)
    replay.update_priorities([0, 29], [4.0, 4.0])
    stats = replay.stats()
    assert (stats.size, stats.inserted, stats.sampled) == (20, 30, 15)
    assert stats.ratio == 15 / 29  # Those after the first one, with which sampling could start.
    assert stats.bytes_raw == 20 * (2 * 8 + 3 * 4)
    assert stats.bytes_payload <= stats.bytes_used
    assert stats.compression == stats.bytes_raw / stats.bytes_used
    assert stats.mean_priority == (19 * 2 + 4) / 20
    assert stats.late_updates == 1
    assert 0 <= stats.mean_age_s < 3600
    assert stats.inserts_per_s > 0 and replay.stats().inserts_per_s == 0
    assert all(np.isfinite(value) for value in vars(stats).values())


@pytest.mark.parametrize("ratio", [0.75, 3.0])
def test_batches_keep_the_ratio(ratio: float) -> None:
    """Guards the whole path: inserts and samples in threads, ratio within 1 % over the run."""
    replay = new_replay(replay_ratio=ratio, replay_ratio_slack=16, replay_buffer_min_size=10)
    trained = []

    def insert() -> None:
        for i in range(1000):
            replay.insert(unrolls([i, i, i]))

    def train() -> None:
        for sample in replay.batches(8):
            replay.update_priorities(sample.keys, np.ones(8))
            trained.append(len(sample.keys))

    *inserting, training = (threading.Thread(target=work) for work in (insert, insert, train))
    for thread in (*inserting, training):
        thread.start()
    for thread in inserting:
        thread.join()
    replay.close()
    training.join(60)
    assert not training.is_alive()
    stats = replay.stats()
    assert (stats.inserted, stats.sampled) == (6000, sum(trained))
    assert stats.ratio == pytest.approx(ratio, rel=0.01)
    assert sum(trained) / 6000 == pytest.approx(ratio, rel=0.01)


def test_batches_end_with_the_replay() -> None:
    """Guards a clean stop while a trainer waits for a batch that never comes."""
    replay = new_replay(replay_buffer_min_size=50)
    threading.Timer(0.1, replay.close).start()
    assert list(replay.batches(4)) == []
    with pytest.raises(ReplayClosed):
        replay.insert(unrolls([0]))
    assert len(replay) == 0


def test_min_size_beyond_size_is_a_user_error() -> None:
    """Guards against a run that would wait forever before its first batch."""
    with pytest.raises(UserError, match="never start"):
        ReplayConfig(replay_buffer_size=10, replay_buffer_min_size=11)


def test_specs_of_unrolls() -> None:
    """Guards the helper that agents make their specs with."""
    step = {"observation": np.zeros((4, 4), np.uint8), "reward": np.zeros((), np.float32)}
    state, steps = unroll_specs(step, 7, (np.zeros(5, np.float32),))
    assert state == (FieldSpec((5,), np.float32, time=False),)
    assert steps["observation"] == FieldSpec((7, 4, 4), np.uint8)
    assert unroll_specs(step, 7) == steps
