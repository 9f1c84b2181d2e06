"""Unrolls in compressed memory, with priorities: the native part of `PrioritizedReplay`.

Each unroll is a record, compressed with zstd where that saves memory, in a log of immutable
segments of a few megabytes. The log is first in, first out, so memory does not fragment and a
checkpoint can write segments while inserts continue.
"""

from __future__ import annotations

import ctypes
import dataclasses
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from seed_rl.common import nest
from seed_rl.common.replay import native
from seed_rl.common.replay.buffers import BatchMemory
from seed_rl.common.replay.specs import Layout

SEGMENT_BYTES = 4 << 20


@dataclasses.dataclass(frozen=True)
class Segment:
    """Records of consecutive keys.

    Attributes:
      first_key: key of the first record.
      ends: <uint32>[records], the end offset of each record.
      data: <uint8>[bytes], the records.
    """

    first_key: int
    ends: np.ndarray
    data: np.ndarray


class UnrollStorage:
    """Unrolls with keys 0, 1, 2, ... in insertion order; the oldest are evicted first.

    Keys are never reused. Thread-safe.

    Args:
      layout: the fields of an unroll.
      capacity: unrolls to hold.
      priority_exponent: unrolls are drawn in proportion to priority ** priority_exponent.
      compression_level: level of zstd; 0: no compression.
      max_bytes: memory limit, kept by evicting the oldest unrolls early. 0: no limit.
      segment_bytes: size of a segment; for tests.
    """

    def __init__(
        self,
        layout: Layout,
        capacity: int,
        priority_exponent: float = 1.0,
        compression_level: int = 1,
        max_bytes: int = 0,
        segment_bytes: int = SEGMENT_BYTES,
    ):
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}.")
        self.layout = layout
        self.capacity = capacity
        self.max_bytes = max_bytes
        self._memory = BatchMemory()
        self._destroy = native.library().seed_replay_destroy  # Not to be looked up at exit.
        options = native.Options(
            capacity, max_bytes, segment_bytes, compression_level, priority_exponent
        )
        self._handle = native.create(
            "replay_create",
            len(layout.fields),
            ctypes.addressof(fields := layout.native_fields()),
            options,
        )
        del fields

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._destroy(self._handle)

    def __len__(self) -> int:
        stats = self.stats()
        return stats.next_key - stats.oldest_key

    def insert(self, values: nest.Nest, priorities: npt.ArrayLike | None = None) -> np.ndarray:
        """Inserts a batch of unrolls.

        Args:
          values: nest of arrays [time, n, ...], fields without time [n, ...].
          priorities: <float>[n], finite and not negative; None: all 1.

        Returns:
          The keys <int64>[n] of the unrolls.

        Raises:
          ValueError: structure, dtypes or shapes differ from the layout, or the priorities are
            invalid; nothing was inserted.
        """
        arrays, size = self.layout.arrays(values)
        checked = _checked_priorities(np.ones(size) if priorities is None else priorities, (size,))
        keys = np.empty(size, np.int64)
        native.call(
            "replay_insert",
            self._handle,
            size,
            self.layout.views(arrays),
            native.pointer(checked),
            time.time(),
            native.pointer(keys),
        )
        return keys

    def draw(self, fractions: np.ndarray) -> tuple[nest.Nest, np.ndarray, np.ndarray, int]:
        """Draws unrolls, with replacement.

        Args:
          fractions: <float64>[n] in [0, 1), points on the priorities laid end to end.

        Returns:
          (unrolls, keys <int64>[n], probabilities <float64>[n] of drawing each, number of unrolls
          in the storage).

        Raises:
          ValueError: the storage is empty.
          DamagedError: an unroll's memory was damaged.
        """
        n = len(fractions)
        arrays = self._memory.take(self.layout, n)
        keys = np.empty(n, np.int64)
        probabilities = np.empty(n, np.float64)
        size = native.call(
            "replay_sample",
            self._handle,
            n,
            native.pointer(fractions),
            self.layout.views(arrays),
            native.pointer(keys),
            native.pointer(probabilities),
        )
        if size == 0:
            raise ValueError("The replay is empty.")
        return self.layout.pack(arrays), keys, probabilities, size

    def update_priorities(self, keys: npt.ArrayLike, priorities: npt.ArrayLike) -> int:
        """Sets the priorities <float>[n] of `keys` <int64>[n], ignoring evicted keys.

        Returns:
          The number of priorities set.

        Raises:
          ValueError: a priority is NaN, infinite or negative; none was set.
        """
        keys = np.ascontiguousarray(keys, np.int64)
        checked = _checked_priorities(priorities, keys.shape)
        return native.call(
            "replay_update_priorities",
            self._handle,
            len(keys),
            native.pointer(keys),
            native.pointer(checked),
        )

    def set_priority_exponent(self, exponent: float) -> None:
        """Sets the exponent; a change takes O(n)."""
        native.library().seed_replay_set_exponent(self._handle, exponent)

    def stats(self) -> native.Stats:
        """Current counts and bytes."""
        stats = native.Stats()
        native.library().seed_replay_stats(self._handle, ctypes.byref(stats))
        return stats

    def snapshot(self) -> Snapshot:
        """The current content; later inserts and priorities do not change it."""
        return Snapshot(native.create("replay_snapshot", self._handle))

    def restore_segment(self, segment: Segment) -> None:
        """Appends a segment of a snapshot; nothing may have been inserted yet.

        Raises:
          ValueError: it does not match the layout or does not follow the previous segment.
        """
        ends = np.ascontiguousarray(segment.ends, np.uint32)
        data = np.ascontiguousarray(segment.data, np.uint8)
        if len(ends) == 0 or ends[-1] != len(data):
            raise ValueError("the records of a segment do not fill it")
        native.call(
            "replay_restore_segment",
            self._handle,
            segment.first_key,
            len(ends),
            native.pointer(ends),
            native.pointer(data),
        )

    def restore_entries(self, priorities: np.ndarray, inserted_at: np.ndarray) -> None:
        """Completes the restore with the priorities and times <float64>[n] of the last n keys.

        Raises:
          ValueError: they do not match the segments, or n exceeds the capacity.
        """
        inserted_at = np.ascontiguousarray(inserted_at, np.float64)
        priorities = _checked_priorities(priorities, inserted_at.shape)
        native.call(
            "replay_restore_entries",
            self._handle,
            len(priorities),
            native.pointer(priorities),
            native.pointer(inserted_at),
        )


class Snapshot:
    """Content of a storage at one moment; keeps the memory of its segments until deleted.

    Attributes:
      oldest_key: key of the first unroll.
      next_key: key of the last unroll, plus 1.
      priorities: <float64>[unrolls].
      inserted_at: <float64>[unrolls], Unix seconds.
    """

    def __init__(self, handle: ctypes.c_void_p):
        self._handle = handle
        entries = native.Entries()
        native.library().seed_replay_snapshot_entries(handle, ctypes.byref(entries))
        self.oldest_key = int(entries.oldest_key)
        self.next_key = int(entries.next_key)
        size = self.next_key - self.oldest_key
        self.priorities = _copy(entries.priorities, ctypes.c_double, size)
        self.inserted_at = _copy(entries.inserted_at, ctypes.c_double, size)
        self._num_segments = int(entries.num_segments)

    def __del__(self) -> None:
        native.library().seed_replay_snapshot_destroy(self._handle)

    def segments(self) -> Iterator[Segment]:
        """The segments, oldest first, as views that are valid as long as the snapshot.

        The first one may begin with records of keys before `oldest_key`.
        """
        for index in range(self._num_segments):
            segment = native.Segment()
            native.library().seed_replay_snapshot_segment(
                self._handle, index, ctypes.byref(segment)
            )
            yield Segment(
                int(segment.first_key),
                _view(segment.ends, ctypes.c_uint32, segment.count),
                _view(segment.data, ctypes.c_uint8, segment.bytes),
            )


def _checked_priorities(priorities: npt.ArrayLike, shape: tuple[int, ...]) -> np.ndarray:
    """Returns `priorities` as <float64>.

    Raises:
      ValueError: they have another shape, or one is negative or not finite.
    """
    result = np.ascontiguousarray(priorities, np.float64)
    if result.shape != shape:
        raise ValueError(f"priorities must have shape {list(shape)}, got {list(result.shape)}.")
    # The comparisons are false for NaN too.
    valid = (result >= 0) & (result < np.inf)
    if not valid.all():
        raise ValueError(f"priorities must be finite and not negative, got {result[~valid][0]}.")
    return result


def _view(address: int | None, item: type, count: int) -> np.ndarray:
    if not address or not count:
        return np.empty(0, np.dtype(item))
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(item)), (count,))


def _copy(address: int | None, item: type, count: int) -> np.ndarray:
    return _view(address, item, count).copy()
