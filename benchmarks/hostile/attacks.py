"""The attacks, for the main defences of haproxy.cfg and the server, and the process that attacks.

Run by `benchmarks.hostile` as `python -m benchmarks.hostile.attacks`; takes commands. The attacks
up to `no_certificate` are by clients without a certificate, and end at the proxy; the others by one
with a certificate and the token.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks import processes
from benchmarks.hostile import http2
from benchmarks.hostile.http2 import Connection
from benchmarks.hostile.stage import TOKEN, Stage, tls_context

_NICENESS = 10  # Attackers are other machines: they should not take the server's processor.
_SOURCES = 600
"""Addresses that distributed attacks come from."""
_HELD = 10_000
_HELLO_AMBUSH = 2000
_RESET_AMBUSH = 200  # Connections.
_RESETS = 2000  # On each, about 56 KB.
_MIB = 1 << 20
_PREFACE = http2.PREFACE + http2.settings({})
_NO_ROOM = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
"""The preface of a client that takes no answers."""


def silent(stage: Stage) -> None:
    """10,000 connections from 600 addresses that say nothing."""
    opened = [_connect(stage) for _ in range(_HELD)]
    stage.hold()
    _close(opened)


def held_hellos(stage: Stage) -> None:
    """The first message of TLS on connections that stay open."""
    hello = _hello(stage)
    limit = 2400 * stage.seconds
    opened: list[socket.socket | None] = []
    while stage.running() and stage.counts["strangers"] < limit:
        opened.append(_connect(stage, hello))
        if len(opened) > _HELD:
            _close([opened.pop(0)])
    stage.hold()
    _close(opened)


def hello_ambush(stage: Stage) -> None:
    """2,000 connections that settle first, and then greet at once."""
    hello = _hello(stage)
    opened: list[socket.socket | None] = []
    while stage.running():
        opened += [_connect(stage) for _ in range(_HELLO_AMBUSH - len(opened))]
        time.sleep(min(1.0, stage.seconds / 4))
        for connection in opened:
            _send(connection, hello)
        time.sleep(min(1.0, stage.seconds / 4))
        _close(opened)
        opened = []


def no_certificate(stage: Stage) -> None:
    """Complete handshakes without a certificate, followed by requests."""
    context = tls_context(stage.secrets, member=False)
    while stage.running():
        with contextlib.suppress(OSError), socket.socket() as connection:
            connection.settimeout(1)
            connection.connect(("127.0.0.1", stage.port))
            with context.wrap_socket(connection) as encrypted:
                stage.counts["handshakes"] += 1
                encrypted.sendall(http2.PREFACE)
                encrypted.recv(1)


def reset_ambush(stage: Stage) -> None:
    """200 connections that settle first, and then open and reset streams at once."""
    frames = _resets(range(1, 2 * _RESETS, 2), *http2.short_requests(http2.CALL, TOKEN))
    opened = [stage.connect(_NO_ROOM) for _ in range(_RESET_AMBUSH)]
    time.sleep(max(0.0, stage.seconds / 4))
    for connection in opened:
        if connection is not None and stage.attempt(connection.send, frames) is None:
            stage.counts["requests"] += _RESETS
    stage.hold(opened)


def unwritable_health(stage: Stage) -> None:
    """Health checks whose answers have no room, so that they last, and whose requests never end.

    Each connection sends little; there are many.
    """
    block = http2.request(http2.HEALTH)
    streams = _open(stage, block, connections=100, streams=30, preface=_NO_ROOM)
    stage.upload(streams, memoryview(http2.message_prefix(60 * _MIB) + bytes(_MIB // 8)))
    stage.hold(list(dict.fromkeys(connection for connection, _ in streams)))


def partial_calls(stage: Stage) -> None:
    """Calls of 60 MiB that stop a byte before their end; the proxy allows one per connection."""
    streams = _open(stage, http2.request(http2.CALL, TOKEN), connections=4, streams=1)
    stage.upload(streams, memoryview(http2.message(bytes(60 * _MIB)))[:-1])
    stage.hold([connection for connection, _ in streams])


def many_streams(stage: Stage) -> None:
    """Four connections with 1,024 streams of calls each."""
    block = http2.request(http2.CALL, TOKEN)
    streams = _open(stage, block, connections=4, streams=1024)
    stage.counts["streams"] = len(streams)
    stage.hold(list(dict.fromkeys(connection for connection, _ in streams)))


ATTACKS: dict[str, Callable[[Stage], None]] = {
    attack.__name__: attack
    for attack in (
        *(silent, held_hellos, hello_ambush, no_certificate),
        *(reset_ambush, unwritable_health, partial_calls, many_streams),
    )
}
"""All attacks by name."""


def attack(name: str, port: int, secrets: str, seconds: float) -> dict[str, Any]:
    """Runs an attack; returns what it did, counted."""
    with Stage(port, secrets, seconds) as stage:
        ATTACKS[name](stage)
        return dict(stage.counts)


def _connect(stage: Stage, data: bytes = b"") -> socket.socket | None:
    """A connection from the next of the attack's addresses; None if it is refused."""
    source = stage.counts["strangers"] % _SOURCES
    stage.counts["strangers"] += 1
    connection = socket.socket()
    connection.settimeout(1)
    try:
        connection.bind((f"127.1.{source // 250}.{source % 250 + 1}", 0))
        connection.connect(("127.0.0.1", stage.port))
        if data:
            connection.sendall(data)
    except OSError:
        connection.close()
        stage.counts["refusals"] += 1
        return None
    return connection


def _send(connection: socket.socket | None, data: bytes) -> None:
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.sendall(data)


def _close(connections: list[socket.socket | None]) -> None:
    for connection in connections:
        if connection is not None:
            connection.close()


def _hello(stage: Stage) -> bytes:
    """The first message of TLS."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = tls_context(stage.secrets, member=False).wrap_bio(received, sent)
    with contextlib.suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return sent.read()


def _resets(streams: Iterable[int], first: bytes, block: bytes) -> bytes:
    """Requests with the header block `first`, then `block`, each followed by its reset."""
    frames = []
    for stream in streams:
        frames.append(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, first))
        frames.append(http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL.to_bytes(4, "big")))
        first = block
    return b"".join(frames)


def _open(
    stage: Stage, block: bytes, *, connections: int, streams: int, preface: bytes = _PREFACE
) -> list[tuple[Connection, int]]:
    """Opens connections with this many streams each; fewer, if the server refuses some."""
    result = []
    for _ in range(connections):
        connection = stage.connect(preface)
        if connection is None:
            continue
        for _ in range(streams):
            stream = stage.attempt(connection.open, block)
            if stream is None:
                break
            result.append((connection, stream))
    return result


if __name__ == "__main__":
    os.nice(_NICENESS)
    processes.serve_commands(attack)
