"""Honest clients: one that calls all the time, and newcomers that call once.

Run by `benchmarks.hostile` as `python -m benchmarks.hostile.clients`; takes commands.
"""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from typing import Any

import numpy as np

from benchmarks import processes
from benchmarks.hostile import http2
from benchmarks.hostile.stage import TOKEN
from benchmarks.secured import Secrets
from seed_rl.grpc.call_stream import CallStream
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import CallError, ConnectionLost, Timeout
from seed_rl.grpc.numpy_client import Client

PATIENCE_S = 5.0
"""After this long without an answer a client gives up."""

_HEALTH_CHECK_S = 0.5  # The proxy allows 40 requests in 10 s to a connection.
_PAUSE_S = 0.002  # Between calls.
_NAP_S = 0.005
_FAILURES = (CallError, ConnectionLost, Timeout)


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Notes when this process was not allowed to run, or the whole machine stood still.

    Attributes:
      pauses: (start, end) of each such time.
    """

    def __init__(self) -> None:
        """Begins to watch."""
        self.pauses: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self._thread.join()

    def stolen(self, start: float, end: float) -> float:
        """How many of these seconds were pauses."""
        return sum(max(0.0, min(end, p[1]) - max(start, p[0])) for p in self.pauses)

    def stood_still(self, start: float, end: float) -> bool:
        """Whether so much of this time was pauses that a deadline proves nothing."""
        return self.stolen(start, end) > PATIENCE_S / 5

    def _run(self) -> None:
        last = time.monotonic()
        while not self._done.is_set():
            time.sleep(_NAP_S)
            now = time.monotonic()
            if now - last > 2 * _NAP_S:
                self.pauses.append((last + _NAP_S, now))
            last = now


def run(action: str, **arguments: Any) -> Any:
    """One command."""
    return call_steadily(**arguments) if action == "call" else join(**arguments)


def join(port: int, secrets: str) -> dict[str, Any]:
    """Connects, calls once and leaves; returns how long that took, or why it failed.

    A failure does not count if this process did not run for much of the time.
    """
    options = _options(secrets)
    while True:
        error = None
        start = time.monotonic()
        with Watch() as watch:
            try:
                with Client(f"127.0.0.1:{port}", options) as client:
                    client.double(1)
            except _FAILURES as failure:
                error = str(failure)
        now = time.monotonic()
        if error is None or not watch.stood_still(start, now):
            return {"error": error, "ms": 1000 * (now - start - watch.stolen(start, now))}


def call_steadily(port: int, secrets: str, until: float) -> dict[str, Any]:
    """Calls `double` until a time, and checks the server's health now and then.

    Returns:
      `calls`: (start, end) of each; `failures`: (time, text) of those that failed; `pauses`: the
      times (start, end) in which this process did not run although it wanted to.
    """
    calls: list[Any] = []
    failures = []
    with Watch() as watch:
        while time.monotonic() < until:
            try:
                _call_until_failure(port, secrets, until, calls)
            except _FAILURES as error:
                time.sleep(0.1)  # Before a new attempt; and the pause, if any, is known.
                now = time.monotonic()
                if not watch.stood_still(now - PATIENCE_S, now):
                    failures.append((now, str(error)))
    return {"calls": calls, "failures": failures, "pauses": watch.pauses}


def _options(secrets: str) -> ClientOptions:
    files: dict[str, Any] = Secrets(pathlib.Path(secrets)).actor
    return ClientOptions(
        connect_timeout_s=PATIENCE_S,
        call_timeout_s=PATIENCE_S,
        token=TOKEN,
        **files,
    )


def _call_until_failure(port: int, secrets: str, until: float, calls: list[Any]) -> None:
    address = f"127.0.0.1:{port}"
    options = _options(secrets)
    health = CallStream(address, options)  # Another connection.

    def check() -> None:
        code, answer = health.request(http2.HEALTH, PATIENCE_S, wait=True)
        if code:
            raise ConnectionLost(f"a health check failed: {answer.decode()}")

    with Client(address, options) as client:
        check()
        checked = time.monotonic()
        while (start := time.monotonic()) < until:
            try:
                if start - checked > _HEALTH_CHECK_S:
                    checked = start
                    check()
                else:
                    client.double(np.int32(1))
            finally:  # A call that failed has been waited for, too.
                calls.append((start, time.monotonic()))
            time.sleep(_PAUSE_S)


if __name__ == "__main__":
    processes.serve_commands(run)
