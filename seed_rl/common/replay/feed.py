"""Batches made ahead of their use (no TensorFlow)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from seed_rl.common.replay.rate_limiter import ReplayClosed, ReplayTimeout

# How often a thread that waits for the rate limiter looks whether it is to end.
_POLL_S = 0.2


class BatchFeed(Iterator[Any]):
    """An iterator whose items are made by threads while earlier ones are used.

    Ends when the replay is closed or `close` is called; what a thread raised otherwise, `next`
    raises. Use as a context manager, or call `close`.

    Args:
      sample: makes one item; called with a timeout in seconds, may raise `ReplayTimeout`.
      prefetch: items that may lie ready.
      workers: threads.
    """

    def __init__(self, sample: Callable[[float], Any], prefetch: int, workers: int):
        if prefetch < 1 or workers < 1:
            raise ValueError(f"prefetch and workers must be at least 1: {prefetch}, {workers}.")
        self._sample = sample
        self._changed = threading.Condition()
        # Guarded by _changed, as all that follows.
        self._ready: deque[Any] = deque()
        self._places = prefetch  # Items that threads may still begin.
        self._closed = False
        self._ended = False
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, name=f"replay-feed-{i}", daemon=True)
            for i in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended or self._closed)
            if self._ready and not self._closed:
                self._places += 1
                self._changed.notify_all()
                return self._ready.popleft()
            if self._error is not None:
                raise self._error
            raise StopIteration

    def __enter__(self) -> BatchFeed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def ready(self) -> int:
        """Items that lie ready; 0 most of the time means that the feed is the bottleneck."""
        with self._changed:
            return len(self._ready)

    def close(self) -> None:
        """Ends the threads and drops what they made."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()
        self._ready.clear()

    def _work(self) -> None:
        try:
            while self._take_place():
                item = self._make()
                if item is None:
                    return
                with self._changed:
                    self._ready.append(item)
                    self._changed.notify_all()
                del item  # Its memory is free for the next one once the user is done with it.
        except ReplayClosed:
            self._end(None)
        except BaseException as error:
            self._end(error)

    def _take_place(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._places > 0 or self._closed or self._ended)
            self._places -= 1
            return not (self._closed or self._ended)

    def _make(self) -> Any:
        """The next item; None if the feed was closed."""
        while True:
            try:
                return self._sample(_POLL_S)
            except ReplayTimeout:
                with self._changed:
                    if self._closed or self._ended:
                        return None

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._ended = True
            self._error = self._error or error
            self._changed.notify_all()
