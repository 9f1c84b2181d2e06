"""Clean shutdown on SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAVE_TIME_S = 60.0
"""Seconds after the first signal during which further SIGTERMs count as the same request."""


class Requests:
    """Distinguishes repeated signals of one stop request from a demand to exit immediately.

    Job managers signal every process of a job, sometimes repeatedly, and a supervisor among those
    processes forwards the signal. So SIGTERM counts as insisting only after the learner has had
    `SAVE_TIME_S` to save. Ctrl-C comes from the user, who presses it again to insist.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._interrupted = False

    def insists(self, number: int) -> bool:
        """Records a signal; returns whether it demands an immediate exit."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        if number == signal.SIGINT:
            again, self._interrupted = self._interrupted, True
            return again
        return number == signal.SIGTERM and now - self._first > SAVE_TIME_S


class StopSignal:
    """A stop request by SIGINT or SIGTERM; a repeated signal may end the process (`Requests`).

    Python runs signal handlers only between bytecode instructions of the main thread, which may
    block in a TensorFlow call indefinitely (waiting for unrolls from actors that are gone). So the
    C-level handler wakes a background thread, which calls `on_stop` (to close the queue that the
    main thread waits for, say).

    Use it as a context manager; on exit, it restores the previous handlers.

    Args:
      on_stop: called once, in another thread, at the first request.
    """

    def __init__(self, on_stop: Callable[[], None] | None = None):
        self._on_stop = on_stop
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._requests = Requests()
        self._previous: dict[int, Any] = {}
        self._previous_fd = -1
        self._pipe: tuple[socket.socket, socket.socket] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is not threading.main_thread():
            return self  # Only the main thread can set handlers; `request` still works.
        self._pipe = socket.socketpair()
        self._pipe[1].setblocking(False)
        self._thread = threading.Thread(target=self._watch, name="stop-signal", daemon=True)
        self._thread.start()
        self._previous_fd = signal.set_wakeup_fd(self._pipe[1].fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            # The C level only writes to the pipe if a handler is set.
            self._previous[number] = signal.signal(number, lambda *_: None)
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
        """Whether a stop has been requested."""
        return self._event.is_set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the request or the timeout; returns `requested`."""
        return self._event.wait(timeout_s)

    def request(self, reason: str | None = None) -> None:
        """Requests a stop, as a signal does."""
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
        if self._requests.insists(number):
            logging.error("%s again: exiting immediately; unsaved progress is lost.", name)
            with contextlib.suppress(Exception):
                logging.shutdown()
            os._exit(128 + number)
        # In its own thread, so that a slow `on_stop` does not block later signals.
        threading.Thread(target=self.request, args=(name,), name="on-stop", daemon=True).start()
