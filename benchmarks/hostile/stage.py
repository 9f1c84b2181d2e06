"""What attacks are made of: time, connections and counts."""

from __future__ import annotations

import collections
import contextlib
import pathlib
import ssl
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.hostile import http2
from benchmarks.hostile.http2 import Connection

T = TypeVar("T")

_REFUSED_PAUSE_S = 0.01
_MEMBER_TIMEOUT_S = 2.0

TOKEN = "secret"
"""The server's; honest clients have it, and the authenticated attacker."""


def tls_context(secrets: pathlib.Path, member: bool) -> ssl.SSLContext:
    """The attackers' TLS, with or without an actor's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(secrets / "ca.pem")
    context.set_alpn_protocols(["h2"])
    if member:
        context.load_cert_chain(secrets / "actor-cert.pem", secrets / "actor-key.pem")
    return context


class Stage:
    """What an attack works with; closes its connections at the end.

    Attributes:
      port: the proxy's.
      secrets: directory of the run's certificates; unauthenticated attackers only use ca.pem.
      seconds: how long the attack lasts.
      counts: what was done, for the report.
    """

    def __init__(self, port: int, secrets: str, seconds: float):
        """Starts the clock."""
        self.port = port
        self.secrets = pathlib.Path(secrets)
        self.tls = tls_context(self.secrets, member=True)
        self.seconds = seconds
        self.counts: collections.Counter[str] = collections.Counter()
        self._end = time.monotonic() + seconds
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> Stage:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._opened.close()

    def running(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() < self._end

    def connect(self, preface: bytes = http2.PREFACE + http2.settings({})) -> Connection | None:
        """An authenticated connection, open until the end; None if it is refused."""
        connection = self.attempt(Connection, self.port, preface, _MEMBER_TIMEOUT_S, self.tls)
        if connection is not None:
            self._opened.callback(connection.close)
            self.counts["connections"] += 1
        return connection

    def attempt(self, step: Callable[..., T], *args: object) -> T | None:
        """The result of `step(*args)`; None if the server refused it, which counts as a refusal."""
        try:
            return step(*args)
        except OSError:
            self.counts["refusals"] += 1
            time.sleep(_REFUSED_PAUSE_S)
            return None

    def hold(self, connections: Sequence[Connection | None] = ()) -> None:
        """Waits for the end of the attack, answering pings."""
        opened = [connection for connection in connections if connection is not None]
        while self.running():
            for connection in list(opened):
                try:
                    connection.receive()
                except OSError:
                    opened.remove(connection)
                    self.counts["closed by server"] += 1
            time.sleep(min(0.2, self.seconds / 20))

    def upload(self, streams: Sequence[tuple[Connection, int]], data: memoryview) -> None:
        """Sends `data` on each stream, as fast as the server takes it."""
        rest = {stream: data for stream in streams}
        while self.running() and rest:
            sent = 0
            for connection, stream in list(rest):
                try:
                    connection.receive()
                    if stream in connection.closed_streams:
                        raise ConnectionResetError("the server has ended the stream")
                    part = rest[connection, stream][: 16 * http2.MAX_FRAME_BYTES]
                    size = connection.send_data(stream, part)
                except OSError:
                    self.counts["refusals"] += 1
                    del rest[connection, stream]
                    continue
                sent += size
                rest[connection, stream] = rest[connection, stream][size:]
                if not rest[connection, stream]:
                    del rest[connection, stream]
            self.counts["bytes"] += sent
            if not sent:
                time.sleep(0.002)
