"""Just enough HTTP/2 (RFC 9113) to misuse it: frames, and connections that obey no rules.

Header blocks use literal fields without indexing and without Huffman coding (RFC 7541, 6.2.2), so
they need no state.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
WINDOW_UPDATE = 0x8
"""Types of frames."""

ACK = END_STREAM = 0x1
END_HEADERS = 0x4
"""Flags of frames."""

INITIAL_WINDOW_SIZE = 0x4
"""A setting: how much the peer may send on a new stream."""

CANCEL = 0x8
"""An error code."""

MAX_FRAME_BYTES = 16_384
"""Largest payload of a frame that a peer must accept."""

CALL = "/seed_rl.Inference/Call"
HEALTH = "/grpc.health.v1.Health/Check"

_HEADER_BYTES = 9
_DEFAULT_WINDOW = 65_535
_TIMEOUT_S = 0.5  # For a peer that no longer reads.


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes | memoryview = b"") -> bytes:
    """One frame."""
    length = struct.pack(">I", len(payload))[1:]
    return b"".join((length, struct.pack(">BBI", kind, flags, stream), payload))


def settings(values: Mapping[int, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(SETTINGS, payload=b"".join(struct.pack(">HI", *item) for item in values.items()))


def field(name: str, value: str) -> bytes:
    """One field of a header block."""
    return b"\x00" + _text(name) + _text(value)


def request(path: str, token: str | None = None) -> bytes:
    """The header block of a gRPC call."""
    return b"".join(field(*item) for item in _request_fields(path, token).items())


def short_requests(path: str, token: str | None = None) -> tuple[bytes, bytes]:
    """Header blocks of gRPC calls: a connection's first, and shorter ones that refer to it."""
    fields = _request_fields(path, token)
    first = b"".join(b"\x40" + _text(name) + _text(value) for name, value in fields.items())
    newest = 62  # RFC 7541, 2.3.3: of the entries of the dynamic table.
    return first, bytes(0x80 | newest + i for i in reversed(range(len(fields))))


def _request_fields(path: str, token: str | None) -> dict[str, str]:
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    if token is not None:
        fields["authorization"] = f"Bearer {token}"
    return fields


def message_prefix(length: int) -> bytes:
    """What precedes a gRPC message of `length` bytes."""
    return struct.pack(">BI", False, length)  # Not compressed.


def message(payload: bytes) -> bytes:
    """A gRPC message."""
    return message_prefix(len(payload)) + payload


def _text(text: str) -> bytes:
    data = text.encode()
    return _integer(len(data)) + data


def _integer(value: int) -> bytes:
    """An integer with a prefix of seven bits, the first bit 0 (RFC 7541, 5.1)."""
    if value < 127:
        return bytes([value])
    result = bytearray([127])
    value -= 127
    while value >= 128:
        result.append(value % 128 | 128)
        value //= 128
    result.append(value)
    return bytes(result)


def connect(port: int, timeout_s: float = _TIMEOUT_S) -> socket.socket:
    """A TCP connection to a local port, from another address than that of honest clients.

    So a server can distinguish them, as it can if attackers are other machines.
    """
    return socket.create_connection(("127.0.0.1", port), timeout_s, ("127.0.0.2", 0))


class Connection:
    """A connection that sends given frames; raises ConnectionError once the server ends it.

    Attributes:
      windows: how many bytes the server still takes, by stream; 0 is the whole connection.
      closed_streams: streams that the server has ended.
    """

    def __init__(
        self,
        port: int,
        preface: bytes = PREFACE + settings({}),
        timeout_s: float = _TIMEOUT_S,
        tls: ssl.SSLContext | None = None,
    ):
        """Connects to a local port and sends `preface`.

        Args:
          port: where.
          preface: what to send first.
          timeout_s: for how long the server may read nothing; then `send` raises TimeoutError.
          tls: encrypts the connection; None: it is not encrypted.
        """
        self._next_stream = 1
        self._received = bytearray()
        self._initial_window = _DEFAULT_WINDOW
        self.windows = {0: _DEFAULT_WINDOW}
        self.closed_streams: set[int] = set()
        self._timeout_s = timeout_s
        self.socket: socket.socket = connect(port, timeout_s)
        try:
            if tls is not None:
                self.socket = tls.wrap_socket(self.socket)
            self.send(preface)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Closes the socket."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Sends any bytes; raises TimeoutError if the server does not read them."""
        if data:
            self.socket.sendall(data)

    def new_stream(self) -> int:
        """The number of the next stream."""
        stream = self._next_stream
        self._next_stream += 2
        self.windows[stream] = self._initial_window
        return stream

    def open(self, block: bytes) -> int:
        """Opens a stream with a header block; returns its number."""
        stream = self.new_stream()
        self.send(frame(HEADERS, END_HEADERS, stream, block))
        return stream

    def send_data(self, stream: int, data: memoryview) -> int:
        """Sends as much as the server takes now, in DATA frames; returns the number of bytes."""
        size = max(0, min(len(data), self.windows[stream], self.windows[0]))
        for start in range(0, size, MAX_FRAME_BYTES):
            part = data[start : min(size, start + MAX_FRAME_BYTES)]
            self.send(frame(DATA, 0, stream, part))
        self.windows[stream] -= size
        self.windows[0] -= size
        return size

    def receive(self) -> None:
        """Handles what has arrived, without waiting for more."""
        self.socket.settimeout(0)
        try:
            while data := self.socket.recv(1 << 16):
                self._received += data
            raise ConnectionResetError("closed by the server")
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        finally:
            self.socket.settimeout(self._timeout_s)
        offset = 0
        while len(self._received) - offset >= _HEADER_BYTES:
            start = offset + _HEADER_BYTES
            size = int.from_bytes(self._received[offset : offset + 3], "big")
            if len(self._received) < start + size:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self._received, offset + 3)
            self._handle(kind, flags, stream, bytes(self._received[start : start + size]))
            offset = start + size
        del self._received[:offset]

    def _handle(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == SETTINGS and not flags & ACK:
            for name, value in struct.iter_unpack(">HI", payload):
                if name == INITIAL_WINDOW_SIZE:
                    grown = value - self._initial_window
                    self._initial_window = value
                    for key in self.windows:
                        self.windows[key] += grown if key else 0
            self.send(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            self.send(frame(PING, ACK, 0, payload))
        elif kind == WINDOW_UPDATE:
            if stream in self.windows:
                self.windows[stream] += int.from_bytes(payload, "big")
        elif kind == RST_STREAM or kind == HEADERS and flags & END_STREAM:
            self.windows.pop(stream, None)
            self.closed_streams.add(stream)
        elif kind == GOAWAY:
            raise ConnectionResetError("the server sent GOAWAY")
