"""Reusable memory for batches."""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections import deque

import numpy as np

from seed_rl.common.replay.specs import Layout

# Libraries such as TensorFlow use arrays of this alignment without a copy.
_ALIGNMENT = 64
_MAX_FREE = 4


class BatchMemory:
    """Arrays for batches, in memory that is reused once all arrays of a batch are gone.

    A batch of 64 Atari unrolls takes 55 MB. Each page of fresh memory costs a page fault and is
    cleared first, which takes as long as filling it. Thread-safe.
    """

    def __init__(self) -> None:
        # Not guarded by a lock: arrays return their memory whenever they are collected, possibly in
        # a thread that holds that lock.
        self._free: deque[mmap.mmap] = deque(maxlen=_MAX_FREE)

    def take(self, layout: Layout, size: int) -> list[np.ndarray]:
        """Uninitialized arrays for `size` unrolls, one per field of `layout`."""
        offsets = [0]
        for field in layout.fields:
            count = -(-field.nbytes * size // _ALIGNMENT) * _ALIGNMENT
            offsets.append(offsets[-1] + count)
        whole = self._take(offsets[-1])
        arrays = []
        for field, offset in zip(layout.fields, offsets, strict=False):
            part = whole[offset : offset + field.nbytes * size]
            arrays.append(part.view(field.dtype).reshape(field.batch_shape(size)))
        return arrays

    def _take(self, num_bytes: int) -> np.ndarray:
        memory = self._take_free(num_bytes)
        if memory is None:
            memory = mmap.mmap(-1, max(num_bytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(OSError):  # Not every kernel has huge pages.
                memory.madvise(mmap.MADV_HUGEPAGE)
        # The base of all arrays of the batch, so it is collected after the last of them.
        whole = np.frombuffer(memory, np.uint8)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole

    def _take_free(self, num_bytes: int) -> mmap.mmap | None:
        for _ in range(_MAX_FREE):
            try:
                memory = self._free.popleft()
            except IndexError:
                return None
            if num_bytes <= len(memory) <= 2 * num_bytes + mmap.PAGESIZE:
                return memory
            self._free.append(memory)
        return None
