"""Batches sampled ahead of their use."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from seed_rl.common.replay.rate_limiter import ReplayClosed, ReplayTimeout

# How often a thread that waits for the rate limiter checks whether the feed was closed.
_POLL_S = 0.2


class BatchFeed(Iterator[Any]):
    """An iterator whose items a thread makes while earlier ones are used.

    Ends when the replay is closed or `close` is called. If the thread fails, `next` re-raises its
    exception. Use as a context manager, or call `close`.

    Args:
      sample: makes one item; called with a timeout in seconds, may raise `ReplayTimeout`.
      prefetch: items to make ahead.
    """

    def __init__(self, sample: Callable[[float], Any], prefetch: int):
        if prefetch < 1:
            raise ValueError(f"prefetch must be at least 1, got {prefetch}.")
        self._sample = sample
        self._prefetch = prefetch
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._ready: deque[Any] = deque()
        self._closed = False
        self._ended = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="replay-feed", daemon=True)
        self._thread.start()

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended or self._closed)
            if self._ready and not self._closed:
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

    def close(self) -> None:
        """Ends the thread and drops the items that were not used."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._ready.clear()

    def _work(self) -> None:
        try:
            while self._await_room():
                item = self._make()
                if item is None:
                    return
                with self._changed:
                    self._ready.append(item)
                    self._changed.notify_all()
                del item  # Once its user is done with it, its memory is free for the next one.
        except ReplayClosed:
            self._end(None)
        except BaseException as error:
            self._end(error)

    def _await_room(self) -> bool:
        """Waits until another item may be made; returns False if the feed was closed."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._prefetch or self._closed)
            return not self._closed

    def _make(self) -> Any:
        """The next item; None if the feed was closed."""
        while True:
            try:
                return self._sample(_POLL_S)
            except ReplayTimeout:
                with self._changed:
                    if self._closed:
                        return None

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            self._ended = True
            self._error = error
            self._changed.notify_all()
