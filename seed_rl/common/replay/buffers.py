"""Memory for batches (no TensorFlow)."""

from __future__ import annotations

import contextlib
import mmap
import weakref
from collections import deque

import numpy as np

from seed_rl.common.replay.specs import Layout

# TensorFlow and other libraries take arrays without copying them at this alignment.
_ALIGNMENT = 64
_KEPT = 4


class BatchMemory:
    """Arrays for batches, in memory that is used again once all arrays of a batch are gone.

    A batch of 64 Atari unrolls has 55 MB. Memory fresh from the system costs a page fault and
    clearing for each page, as long as filling it does. Thread-safe.
    """

    def __init__(self) -> None:
        # No lock around it: arrays go, and give their memory back, at any moment, also where the
        # garbage collector interrupts a thread that would hold the lock.
        self._free: deque[mmap.mmap] = deque(maxlen=_KEPT)

    def take(self, layout: Layout, size: int, time_major: bool) -> list[np.ndarray]:
        """Arrays for `size` unrolls, with undefined content, one for each field of `layout`."""
        offsets = [0]
        for field in layout.fields:
            count = -(-field.nbytes * size // _ALIGNMENT) * _ALIGNMENT
            offsets.append(offsets[-1] + count)
        whole = self._take(offsets[-1])
        arrays = []
        for field, offset in zip(layout.fields, offsets, strict=False):
            part = whole[offset : offset + field.nbytes * size]
            arrays.append(part.view(field.dtype).reshape(field.batch_shape(size, time_major)))
        return arrays

    def _take(self, num_bytes: int) -> np.ndarray:
        memory = self._take_free(num_bytes)
        if memory is None:
            memory = mmap.mmap(-1, max(num_bytes, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            with contextlib.suppress(OSError):  # Not every kernel has them.
                memory.madvise(mmap.MADV_HUGEPAGE)
        # All arrays of the batch have this one as their base, so it goes when they are gone.
        whole = np.frombuffer(memory, np.uint8)
        weakref.finalize(whole, self._free.append, memory).atexit = False
        return whole

    def _take_free(self, num_bytes: int) -> mmap.mmap | None:
        for _ in range(_KEPT):
            try:
                memory = self._free.popleft()
            except IndexError:
                return None
            if num_bytes <= len(memory) <= 2 * num_bytes + mmap.PAGESIZE:
                return memory
            self._free.append(memory)
        return None
