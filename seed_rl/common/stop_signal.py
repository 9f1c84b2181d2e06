"""Ending a program in good order on SIGINT and SIGTERM (no TensorFlow)."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import types
from collections.abc import Callable
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignal:
    """A request to stop: the first SIGINT or SIGTERM asks, a second of the same kind kills.

    The same kind, because Ctrl-C reaches every process of the terminal while a supervisor that
    was hit too sends SIGTERM after it: that is one request, not two.

    Python runs signal handlers only between instructions of the main thread, which may be inside
    a TensorFlow call for ever (waiting for unrolls of actors that are gone). So a thread of ours
    is told of the signal by the C-level handler and runs `on_stop` (to close the queue that the
    main thread waits for, say).

    Use as a context manager; on leaving, the old handlers are back.

    Args:
      on_stop: called once, in another thread, at the first request.
    """

    def __init__(self, on_stop: Callable[[], None] | None = None):
        self._on_stop = on_stop
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._seen: set[int] = set()
        self._previous: dict[int, Any] = {}
        self._previous_fd = -1
        self._pipe: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is not threading.main_thread():
            return self  # Only the main thread may listen; `request` still works.
        self._pipe = socket.socketpair()
        self._pipe[1].setblocking(False)
        self._thread = threading.Thread(target=self._watch, name="stop-signal", daemon=True)
        self._thread.start()
        self._previous_fd = signal.set_wakeup_fd(self._pipe[1].fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            # A handler must be set for the C level to write to the pipe; it has nothing to do.
            self._previous[number] = signal.signal(number, _ignore)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
        if self._pipe is not None:
            signal.set_wakeup_fd(self._previous_fd)
            self._pipe[1].close()  # Ends the thread.
            assert self._thread is not None
            if threading.current_thread() is not self._thread:
                self._thread.join()
            self._pipe[0].close()
            self._pipe = None

    @property
    def requested(self) -> bool:
        """Whether to stop."""
        return self._event.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleeps until the request or the timeout; returns `requested`."""
        return self._event.wait(timeout_s)

    def request(self, reason: str | None = None) -> None:
        """Asks to stop, as a signal does."""
        with self._lock:
            if self._event.is_set():
                return
            self._event.set()
        if reason:
            logging.info("%s: stopping.", reason)
        if self._on_stop is not None:
            self._on_stop()

    def _watch(self) -> None:
        assert self._pipe is not None
        receiver = self._pipe[0]
        while numbers := receiver.recv(64):
            for number in numbers:
                if number in SIGNALS:
                    self._handle(number)

    def _handle(self, number: int) -> None:
        name = signal.Signals(number).name
        if number in self._seen:
            logging.error("%s again: ending at once; what was not saved is lost.", name)
            with contextlib.suppress(Exception):
                logging.shutdown()
            os._exit(128 + number)
        self._seen.add(number)
        # In a thread of its own, so that a slow `on_stop` does not keep the second signal out.
        threading.Thread(target=self.request, args=(name,), name="on-stop", daemon=True).start()


def _ignore(number: int, frame: types.FrameType | None) -> None:
    del number, frame
