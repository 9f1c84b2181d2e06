"""The stream of frames shared by all calls of a client, through grpcio."""

from __future__ import annotations

import itertools
import struct
import threading

import grpc

from seed_rl.grpc import message_stream, wire
from seed_rl.grpc.errors import CallError, ConnectionLost, StatusCode, Timeout, WireError

_CALL_ID = struct.Struct("<8xQ")


def decode_answer(address: str, data: bytes) -> wire.Frame:
    """The reply to a call.

    Args:
      address: of the server, for messages.
      data: the frame.

    Raises:
      CallError: it is an error frame, or malformed.
      ConnectionLost: the server is closing.
    """
    try:
        frame = wire.decode(data)
    except WireError as error:
        raise CallError(StatusCode.INTERNAL, f"malformed reply: {error}") from None
    if frame.kind == wire.KIND_ERROR:
        if frame.code == StatusCode.UNAVAILABLE:
            raise ConnectionLost(f"{address}: {frame.message}")
        raise CallError(frame.code, frame.message)
    if frame.kind != wire.KIND_REPLY:
        raise CallError(StatusCode.INTERNAL, "malformed reply: it is a call")
    return frame


class CallStream:
    """Sends calls and passes each reply to the thread waiting for it."""

    def __init__(
        self, channel: grpc.Channel, method: str, metadata: message_stream.Metadata, address: str
    ):
        """Opens the stream.

        Args:
          channel: to the server; closed with the stream.
          method: "/package.Service/Method".
          metadata: sent when the stream starts.
          address: of the server, for messages.
        """
        self._channel = channel
        self._address = address
        self._ids = itertools.count(1)  # next() on it is atomic.
        self._lock = threading.Lock()
        # Entries are added under _lock; the thread that pops one (atomically) wakes its waiter.
        self._waiting: dict[int, _Waiter] = {}
        self._broken: str | None = None  # Why no more calls are possible. Guarded by _lock.
        self._stream = message_stream.MessageStream(
            channel, method, metadata, self._deliver, self._break
        )

    def next_id(self) -> int:
        """Returns a call id that is new on this stream."""
        return next(self._ids)

    def call(self, call_id: int, message: bytes, timeout_s: float | None) -> wire.Frame:
        """Sends a call frame and waits for its reply.

        Raises:
          CallError: if the reply is an error frame.
          ConnectionLost: if the stream is broken or the server is closing.
          Timeout: if there is no reply within `timeout_s`.
        """
        return self.finish(self.start(call_id, message), timeout_s, timeout_s)

    def start(self, call_id: int, message: bytes) -> _Waiter:
        """Sends a call frame; `finish` must follow."""
        waiter = _Waiter(call_id)
        with self._lock:
            if self._broken is not None:
                raise self._lost()
            self._waiting[call_id] = waiter
        try:
            self._stream.send(message)
        except BaseException:  # Ctrl-C.
            self._waiting.pop(call_id, None)
            raise
        return waiter

    def finish(
        self, waiter: _Waiter, timeout_s: float | None, remaining_s: float | None
    ) -> wire.Frame:
        """Waits for the reply to a started call.

        Args:
          waiter: from `start`.
          timeout_s: of the whole call, for the message.
          remaining_s: what is left of it; None: no limit.

        Raises:
          CallError, ConnectionLost, Timeout: see `call`.
        """
        try:
            answered = waiter.done.acquire(timeout=-1 if remaining_s is None else remaining_s)
        finally:  # Also when Ctrl-C interrupts the wait.
            self._waiting.pop(waiter.call_id, None)
        if waiter.data is not None:
            return decode_answer(self._address, waiter.data)
        if not answered:
            raise Timeout(f"{self._address}: no answer within {timeout_s:g} s")
        raise self._lost()

    def close(self, reason: str) -> None:
        """Ends the stream; callers still waiting get `ConnectionLost` with `reason`."""
        self._break(reason)
        self._stream.cancel()
        self._channel.close()

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"{self._address}: {self._broken}")

    def _deliver(self, data: bytes) -> None:
        """Runs in gRPC's thread; late replies to timed-out calls are dropped."""
        if len(data) < _CALL_ID.size:
            self._break(f"the server sent {len(data)} bytes, which is not a frame")
            return
        (call_id,) = _CALL_ID.unpack_from(data)
        waiter = self._waiting.pop(call_id, None)
        if waiter is not None:
            waiter.data = data
            waiter.done.release()
        elif call_id == wire.UNREADABLE_CALL_ID:
            # One of our calls will never be answered, and we cannot tell which.
            self._break("the server could not read a call")

    def _break(self, reason: str) -> None:
        with self._lock:
            if self._broken is None:
                self._broken = reason
        while self._waiting:
            try:
                _, waiter = self._waiting.popitem()
            except KeyError:  # Another thread took the last one.
                break
            waiter.done.release()


class _Waiter:
    """A waiting thread; `done` is released once `data` is set (or None: the stream broke)."""

    __slots__ = ("call_id", "data", "done")

    def __init__(self, call_id: int) -> None:
        self.call_id = call_id
        self.data: bytes | None = None
        self.done = threading.Lock()
        self.done.acquire()
