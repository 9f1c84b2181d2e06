"""Attacks with connections: many of them, silent ones, and ones that speak no HTTP/2."""

from __future__ import annotations

import random
import time

from benchmarks.hostile import http2
from benchmarks.hostile.http2 import Connection
from benchmarks.hostile.stage import Stage

_IDLE_CONNECTIONS = 2000
_SLOW_CONNECTIONS = 200


def descriptors(stage: Stage) -> None:
    """More connections than the server has file descriptors, closed after a second."""
    opened = [stage.connect(b"") for _ in range(500)]
    time.sleep(1)
    for connection in opened:
        if connection is not None:
            connection.close()
    stage.hold()


def churn(stage: Stage) -> None:
    """Connections that are closed at once, every other one after the HTTP/2 preface."""
    limit = stage.scaled(20_000)
    while stage.running() and stage.counts["connections"] < limit:
        preface = http2.PREFACE + http2.settings({}) if stage.counts["connections"] % 2 else b""
        connection = stage.attempt(Connection, stage.port, preface)
        if connection is not None:
            stage.counts["connections"] += 1
            connection.close()


def slowloris(stage: Stage) -> None:
    """Connections that send the HTTP/2 preface one byte per second."""
    opened = [stage.connect(b"") for _ in range(_SLOW_CONNECTIONS)]
    for byte in http2.PREFACE[:-1]:
        if not stage.running():
            return
        for connection in opened:
            if connection is not None:
                stage.attempt(connection.send, bytes([byte]))
        time.sleep(min(1.0, stage.seconds / 4))
    stage.hold(deaf=True)


def idle_connections(stage: Stage) -> None:
    """Connections that finish the HTTP/2 handshake and stay silent."""
    opened = [stage.connect() for _ in range(stage.share(_IDLE_CONNECTIONS))]
    stage.hold(opened)


def idle_streams(stage: Stage) -> None:
    """Connections that open one stream of calls each, and never call."""
    opened = [stage.connect() for _ in range(stage.share(_IDLE_CONNECTIONS))]
    block = http2.request(http2.CALL, stage.token)
    for connection in opened:
        if connection is not None:
            stage.attempt(connection.open, block)
    stage.hold(opened)


def random_bytes(stage: Stage) -> None:
    """Random bytes, at once or after the HTTP/2 preface."""
    rng = random.Random(1)
    limit = stage.scaled(4000)
    while stage.running() and stage.counts["connections"] < limit:
        preface = rng.choice([b"", http2.PREFACE, http2.PREFACE + http2.settings({})])
        data = preface + rng.randbytes(rng.randrange(1, 1 << 15))
        stage.attempt(_send_and_leave, stage.port, data)
        stage.counts["connections"] += 1


def _send_and_leave(port: int, data: bytes) -> None:
    with http2.connect(port) as peer:
        peer.sendall(data)
