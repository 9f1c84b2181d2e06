"""Attacks by an authenticated client, with a certificate and the token."""

from __future__ import annotations

import contextlib
import struct
import threading
import time
from collections.abc import Iterable

import numpy as np

from benchmarks.hostile import http2
from benchmarks.hostile.clients import options_of_member
from benchmarks.hostile.http2 import Connection
from benchmarks.hostile.stage import Stage
from seed_rl.grpc import wire
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import CallError, ConnectionLost, Timeout
from seed_rl.grpc.numpy_client import Client

_MIB = 1 << 20
_MAX_BATCH_SIZE = 1024
_DOUBLE, _WIDE = 0, 1  # In the order in which server.py binds them.
_AMBUSH = 200  # Connections.
_RESETS = 2000  # On each, about 56 KB.
_PREFACE = http2.PREFACE + http2.settings({})
_FAILURES = (CallError, ConnectionLost, Timeout)


def reset_ambush(stage: Stage) -> None:
    """200 connections that settle first, and then open and reset streams at once."""
    frames = _resets(range(1, 2 * _RESETS, 2), *http2.short_requests(http2.CALL, stage.token))
    preface = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
    opened = [stage.connect(preface) for _ in range(_AMBUSH)]
    time.sleep(max(0.0, stage.seconds / 4))
    for connection in opened:
        if connection is not None and stage.attempt(connection.send, frames) is None:
            stage.counts["requests"] += _RESETS
    stage.hold(opened)


def _resets(streams: Iterable[int], first: bytes, block: bytes) -> bytes:
    """Requests with the header block `first`, then `block`, each followed by its reset."""
    frames = []
    for stream in streams:
        frames.append(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, first))
        frames.append(http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL.to_bytes(4, "big")))
        first = block
    return b"".join(frames)


def unwritable_health(stage: Stage) -> None:
    """Health checks whose answers have no room, so that they last, and whose requests never end.

    Each connection sends little; there are many.
    """
    preface = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
    block = http2.request(http2.HEALTH)
    streams = _open(stage, block, connections=stage.share(100), streams=30, preface=preface)
    stage.upload(streams, memoryview(http2.message_prefix(60 * _MIB) + bytes(_MIB // 8)))
    stage.hold(list(dict.fromkeys(connection for connection, _ in streams)))


def partial_calls(stage: Stage) -> None:
    """Calls of 60 MiB that stop a byte before their end; the proxy allows one per connection."""
    streams = _open(stage, http2.request(http2.CALL, stage.token), connections=4, streams=1)
    stage.upload(streams, memoryview(http2.message(bytes(60 * _MIB)))[:-1])
    stage.hold([connection for connection, _ in streams])


def slow_readers(stage: Stage) -> None:
    """Unread replies of one row, each of which may keep the rest of its batch in memory.

    A call of one row and one of the rest of the batch arrive together; the second is cancelled.
    """
    preface = http2.PREFACE + http2.settings({http2.INITIAL_WINDOW_SIZE: 0})
    connection = stage.connect(preface)
    if connection is None:
        return
    block = http2.request(http2.CALL, stage.token)
    row = _call_message(_WIDE, np.zeros(1, np.int32))
    rest = _call_message(_WIDE, np.zeros(_MAX_BATCH_SIZE - 1, np.int32))
    reader = connection.open(block)
    reset = http2.CANCEL.to_bytes(4, "big")
    with contextlib.suppress(OSError):
        while stage.running() and stage.counts["calls"] < 300:
            other = connection.new_stream()
            frames = [
                http2.frame(http2.HEADERS, http2.END_HEADERS, other, block),
                http2.frame(http2.DATA, 0, other, rest),
                http2.frame(http2.DATA, 0, reader, row),
            ]
            connection.send(b"".join(frames))
            time.sleep(0.02)  # Now the batch has run.
            connection.send(http2.frame(http2.RST_STREAM, 0, other, reset))
            connection.receive()
            stage.counts["calls"] += 1
    stage.hold([connection])


def many_streams(stage: Stage) -> None:
    """Four connections with 1,024 streams of calls each."""
    block = http2.request(http2.CALL, stage.token)
    streams = _open(stage, block, connections=4, streams=1024)
    stage.counts["streams"] = len(streams)
    stage.hold(list(dict.fromkeys(connection for connection, _ in streams)))


def empty_strings(stage: Stage) -> None:
    """Calls with 15 million empty strings in place of a number."""
    count = 15_000_000
    tensor = struct.pack("<BBHIQq", wire.STRING, 1, 0, 0, 4 * count, count) + bytes(4 * count)
    header = wire.encode_call(1, _DOUBLE, [])
    header = header[:6] + (1).to_bytes(2, "little") + header[8:]  # One tensor.
    block = http2.request(http2.CALL, stage.token)
    data = memoryview(http2.message(header + tensor))
    while stage.running() and stage.counts["calls"] < 4:
        stage.counts["calls"] += 1
        stage.upload(_open(stage, block, connections=1, streams=1), data)
    stage.hold()


def bad_rows(stage: Stage) -> None:
    """Calls that make the function fail for the whole batch; before that, as many good ones."""
    half = stage.seconds / 2
    start = time.monotonic()

    def call() -> None:
        with contextlib.suppress(ConnectionLost), Client(address, _options(stage)) as client:
            while stage.running():
                try:
                    client.picky(-1 if time.monotonic() > start + half else 1)
                    stage.counts["good"] += 1
                except _FAILURES:
                    stage.counts["failed"] += 1

    address = f"127.0.0.1:{stage.port}"
    stage.marks["bad"] = start + half
    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _options(stage: Stage) -> ClientOptions:
    return options_of_member(str(stage.secrets), stage.token)


def _call_message(function: int, rows: np.ndarray) -> bytes:
    return http2.message(wire.encode_call(1, function, [rows]))


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
