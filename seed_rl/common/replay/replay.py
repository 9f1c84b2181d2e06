"""The replay: insert unrolls, sample batches of them, update their priorities."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from seed_rl.common import nest
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.replay import memory
from seed_rl.common.replay.rate_limiter import RateLimiter, ReplayClosed
from seed_rl.common.replay.specs import Layout
from seed_rl.common.replay.storage import UnrollStorage


class ReplaySample(NamedTuple):
    """A batch of unrolls.

    Attributes:
      unrolls: nest of arrays [time, batch, ...], fields without time [batch, ...]. Their memory
        is reused for later batches once they and all views of them are gone.
      keys: <int64>[batch], for `update_priorities`; an unroll may occur more than once.
      importance_weights: <float32>[batch], (N * P(i)) ** -beta for a replay of N unrolls (Schaul et
        al. 2016, section 3.4). Not divided by their maximum: a sample may be only a part of a
        training batch, whose maximum is then needed.
      ages: <int64>[batch], number of unrolls inserted after this one.
    """

    unrolls: nest.Nest
    keys: np.ndarray
    importance_weights: np.ndarray
    ages: np.ndarray


@dataclasses.dataclass(frozen=True)
class ReplayStats:
    """State of a replay, for logs.

    Attributes:
      size: unrolls in the replay.
      inserted: unrolls inserted since it was last empty.
      sampled: unrolls sampled since then.
      ratio: unrolls sampled per unroll inserted, not counting inserts before sampling could start.
      surplus: see `RateLimiter`.
      bytes_used: total memory.
      bytes_payload: the part of `bytes_used` that holds the unrolls.
      bytes_raw: size of the same unrolls as arrays.
      compression: bytes_raw / bytes_used.
      mean_age_s: mean seconds since insertion, over all unrolls.
      mean_priority: mean of priority ** exponent, over all unrolls.
      inserts_per_s: unrolls inserted per second, since the last call.
      samples_per_s: unrolls sampled per second, since the last call.
      insert_wait_s: seconds that inserts have waited for training.
      sample_wait_s: seconds that training has waited for inserts.
      evicted_for_memory: unrolls evicted early because of the memory limit.
      late_updates: priorities that arrived after their unroll had been evicted.
    """

    size: int
    inserted: int
    sampled: int
    ratio: float
    surplus: float
    bytes_used: int
    bytes_payload: int
    bytes_raw: int
    compression: float
    mean_age_s: float
    mean_priority: float
    inserts_per_s: float
    samples_per_s: float
    insert_wait_s: float
    sample_wait_s: float
    evicted_for_memory: int
    late_updates: int


class PrioritizedReplay:
    """Compressed unrolls in host memory, sampled by priority at a fixed ratio to their insertion.

    Unroll i is sampled with probability P(i) = p_i ** a / sum_j p_j ** a (Schaul et al. 2016),
    where a is `priority_exponent`; 0 makes the replay uniform. Otherwise unrolls of priority 0 are
    never sampled, unless all are 0. Batches are drawn with replacement. Thread-safe: any number of
    threads may insert, sample and update priorities concurrently.

    Args:
      config: sizes, ratio, exponents.
      specs: nest of `FieldSpec`, the fields of an unroll.
      seed: makes sampling reproducible; None: different each time.

    Raises:
      UserError: a full replay would not fit in memory (checked before anything is allocated), or a
        field cannot be stored.
    """

    def __init__(self, config: ReplayConfig, specs: nest.Nest, seed: int | None = None):
        self.config = config
        self.layout = Layout(specs)
        self._max_bytes = memory.limit(config, self.layout)
        self.storage = self.new_storage()
        self.limiter = RateLimiter(
            config.replay_ratio, config.replay_buffer_min_size, config.replay_ratio_slack
        )
        self._rng_lock = threading.Lock()
        self._rng = np.random.default_rng(seed)  # Guarded by _rng_lock.
        self._rates = _Rates()

    def new_storage(self) -> UnrollStorage:
        """An empty storage with this replay's options, for loading a checkpoint."""
        return UnrollStorage(
            self.layout,
            self.config.replay_buffer_size,
            self.config.priority_exponent,
            self.config.replay_compression_level,
            self._max_bytes,
        )

    def __len__(self) -> int:
        return len(self.storage)

    def insert(self, unrolls: nest.Nest, priorities: npt.ArrayLike | None = None) -> np.ndarray:
        """Inserts unrolls; waits while sampling is too far behind.

        Args:
          unrolls: nest of arrays [time, n, ...]; fields without time are [n, ...].
          priorities: <float>[n], finite and not negative; None: all 1.

        Returns:
          Keys <int64>[n] of the unrolls.

        Raises:
          ValueError: the unrolls do not match the specs, or the priorities are invalid; nothing
            was inserted.
          ReplayClosed: nothing was inserted.
        """
        self.limiter.await_insert()
        keys = self.storage.insert(unrolls, priorities)
        self.limiter.count_insert(len(keys))
        return keys

    def sample(self, num_samples: int) -> ReplaySample:
        """Samples a batch; waits for the first unrolls, and while inserting is too far behind.

        Args:
          num_samples: unrolls in the batch.

        Raises:
          ReplayClosed: nothing was sampled.
        """
        if num_samples < 1:
            raise ValueError(f"num_samples must be at least 1, got {num_samples}.")
        self.limiter.sample(num_samples)
        unrolls, keys, probabilities, size = self.storage.draw(self._fractions(num_samples))
        weights = self._importance_weights(probabilities, size)
        ages = self.storage.stats().next_key - 1 - keys
        return ReplaySample(unrolls, keys, weights, ages)

    def update_priorities(self, keys: npt.ArrayLike, priorities: npt.ArrayLike) -> int:
        """Sets new priorities, ignoring unrolls that have been evicted.

        Args:
          keys: <int64>[n], from `sample` or `insert`.
          priorities: <float>[n], finite and not negative.

        Returns:
          The number of priorities set.

        Raises:
          ValueError: a priority is NaN, infinite or negative; none was set.
        """
        return self.storage.update_priorities(keys, priorities)

    def batches(self, batch_size: int) -> Iterator[ReplaySample]:
        """Samples of `batch_size` unrolls, until the replay is closed."""
        with contextlib.suppress(ReplayClosed):
            while True:
                yield self.sample(batch_size)

    def close(self) -> None:
        """Ends all current and future waits in `insert` and `sample` with `ReplayClosed`."""
        self.limiter.close()

    def stats(self) -> ReplayStats:
        """The current state, for logs."""
        stored = self.storage.stats()
        limiter = self.limiter.stats
        size = stored.next_key - stored.oldest_key
        inserts_per_s, samples_per_s = self._rates.update(limiter["inserted"], limiter["sampled"])
        return ReplayStats(
            size=size,
            bytes_used=stored.total_bytes,
            bytes_payload=stored.payload_bytes,
            bytes_raw=stored.raw_bytes,
            compression=stored.raw_bytes / stored.total_bytes,
            mean_age_s=time.time() - stored.mean_inserted_at if size else 0.0,
            mean_priority=stored.total_priority / size if size else 0.0,
            inserts_per_s=inserts_per_s,
            samples_per_s=samples_per_s,
            evicted_for_memory=stored.evicted_early,
            late_updates=stored.late_updates,
            **limiter,
        )

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint needs in addition to the storage, as JSON values."""
        with self._rng_lock:
            random_state = self._rng.bit_generator.state
        return {"limiter": self.limiter.state(), "random": random_state}

    def restore(self, storage: UnrollStorage, state: dict[str, Any]) -> None:
        """Continues from the content and state of a checkpoint. Not thread-safe."""
        rng = np.random.default_rng()
        rng.bit_generator.state = state["random"]
        self.limiter.restore(state["limiter"], len(storage))
        with self._rng_lock:
            self._rng = rng
        self.storage = storage
        counts = self.limiter.stats
        self._rates.update(counts["inserted"], counts["sampled"])  # Rates start from these counts.

    def _fractions(self, n: int) -> np.ndarray:
        with self._rng_lock:
            fractions = self._rng.random(n)
        if self.config.replay_stratified:
            fractions = (np.arange(n) + fractions) / n
        return fractions

    def _importance_weights(self, probabilities: np.ndarray, size: int) -> np.ndarray:
        weights = (size * probabilities) ** -self.config.importance_sampling_exponent
        return np.asarray(weights, np.float32)


class _Rates:
    """Inserts and samples per second between calls. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = (time.monotonic(), 0.0, 0.0)  # Guarded by _lock.

    def update(self, inserted: float, sampled: float) -> tuple[float, float]:
        with self._lock:
            now = time.monotonic()
            then, old_inserted, old_sampled = self._last
            self._last = (now, inserted, sampled)
        seconds = max(now - then, 1e-9)
        return (inserted - old_inserted) / seconds, (sampled - old_sampled) / seconds
