"""Attacks by clients without a certificate, which end at the proxy."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time

from benchmarks.hostile.stage import Stage, tls_context

_SOURCES = 600
"""Addresses that distributed attacks come from."""
_HELD = 10_000
_AMBUSH = 2000


def silent(stage: Stage) -> None:
    """10,000 connections from 600 addresses that say nothing."""
    opened = [_connect(stage) for _ in range(stage.share(_HELD))]
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
        opened += [_connect(stage) for _ in range(_AMBUSH - len(opened))]
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
                encrypted.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                encrypted.recv(1)


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
