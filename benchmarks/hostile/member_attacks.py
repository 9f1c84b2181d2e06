"""Attacks by an authenticated client, with a certificate and the token, on many connections."""

from __future__ import annotations

import time

from benchmarks.hostile import http2
from benchmarks.hostile.frame_attacks import resets
from benchmarks.hostile.stage import Stage

_CONNECTIONS = 200
_RESETS = 2000  # On each, about 56 KB.
_CHECKS = 500
_IDLE_STREAMS = 500


def reset_ambush(stage: Stage) -> None:
    """200 connections that settle first, and then open and reset streams at once."""
    data = resets(range(1, 2 * _RESETS, 2), *http2.short_requests(http2.CALL, stage.token))
    _ambush(stage, data, _RESETS)


def check_ambush(stage: Stage) -> None:
    """200 connections that settle first, and then send health checks at once, without window."""
    first, rest = http2.short_requests(http2.HEALTH)
    frames = [
        http2.frame(http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 2 * i + 1, block)
        for i, block in enumerate([first] + [rest] * (_CHECKS - 1))
    ]
    _ambush(stage, b"".join(frames), _CHECKS)


def _ambush(stage: Stage, data: bytes, count: int) -> None:
    deaf = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
    opened = [stage.connect(deaf) for _ in range(_CONNECTIONS)]
    time.sleep(max(0.0, stage.seconds / 4))
    for connection in opened:
        if connection is not None and stage.attempt(connection.send, data) is None:
            stage.counts["requests"] += count
    stage.hold(opened)


def idle_streams(stage: Stage) -> None:
    """Connections that open one stream of calls each, and never call."""
    opened = [stage.connect() for _ in range(stage.share(_IDLE_STREAMS))]
    block = http2.request(http2.CALL, stage.token)
    for connection in opened:
        if connection is not None:
            stage.attempt(connection.open, block)
    stage.hold(opened)
