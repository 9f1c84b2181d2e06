"""The replays that the replay benchmark compares."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from seed_rl.common import nest
from seed_rl.common.replay import FieldSpec, PrioritizedReplay, ReplayConfig
from seed_rl.common.replay.storage import Segment

_ALPHA, _BETA = 0.9, 0.6


def new_replay(specs: Any, size: int) -> PrioritizedReplay:
    """A replay without a rate limit, so that each operation can be timed alone."""
    config = ReplayConfig(
        replay_buffer_size=size,
        replay_buffer_min_size=1,
        replay_ratio=0.0,
        priority_exponent=_ALPHA,
        importance_sampling_exponent=_BETA,
        replay_assumed_compression=1000.0,  # The caller checks the memory.
    )
    return PrioritizedReplay(config, specs, seed=0)


def full_replay(specs: Any, size: int, unrolls: Any) -> PrioritizedReplay:
    """A full replay of repeated unrolls, each copy in its own memory."""
    replay = new_replay(specs, size)
    replay.insert(unrolls)
    snapshot = replay.storage.snapshot()
    segments = list(snapshot.segments())
    storage, key = replay.new_storage(), 0
    while key < size:
        for segment in segments:
            storage.restore_segment(Segment(key, segment.ends, segment.data))
            key += len(segment.ends)
    storage.restore_entries(_priorities(size), np.full(size, time.time()))
    replay.restore(storage, replay.state())
    return replay


class FlatReplay:
    """The interface of `PrioritizedReplay` over plain arrays: O(n) sampling, no compression.

    It is full from the start, with repeated unrolls.
    """

    def __init__(self, specs: Any, size: int, unrolls: Any):
        self._specs = specs
        self._next = 0
        self._rng = np.random.default_rng(0)
        self._priorities = _priorities(size)
        self._arrays = nest.map_structure(lambda s: np.empty((size, *s.shape), s.dtype), specs)
        nest.map_structure(_tile, specs, self._arrays, unrolls)

    def insert(self, unrolls: Any, priorities: np.ndarray) -> np.ndarray:
        """As `PrioritizedReplay.insert`."""
        keys = (self._next + np.arange(len(priorities))) % len(self._priorities)
        self._next = int(keys[-1] + 1)

        def store(spec: FieldSpec, array: np.ndarray, values: np.ndarray) -> None:
            array[keys] = np.moveaxis(values, 0, 1) if spec.time else values

        nest.map_structure(store, self._specs, self._arrays, unrolls)
        self._priorities[keys] = priorities
        return keys

    def sample(self, num_samples: int) -> tuple[Any, np.ndarray, np.ndarray]:
        """As `PrioritizedReplay.sample`."""
        sums = np.cumsum(self._priorities**_ALPHA)
        keys = np.searchsorted(sums, self._rng.random(num_samples) * sums[-1], side="right")
        weights = (self._priorities[keys] ** _ALPHA / sums[-1] * len(sums)) ** -_BETA

        def gather(spec: FieldSpec, array: np.ndarray) -> np.ndarray:
            batch = array[keys]
            return np.ascontiguousarray(np.moveaxis(batch, 0, 1)) if spec.time else batch

        values = nest.map_structure(gather, self._specs, self._arrays)
        return values, keys, (weights / weights.max()).astype(np.float32)


def _tile(spec: FieldSpec, array: np.ndarray, values: np.ndarray) -> None:
    values = np.moveaxis(values, 0, 1) if spec.time else values
    for start in range(0, len(array), len(values)):
        part = array[start : start + len(values)]
        part[...] = values[: len(part)]


def _priorities(size: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.1, 5, size)
