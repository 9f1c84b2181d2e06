"""The stream of frames that a client's calls share."""

from __future__ import annotations

import itertools
import queue
import struct
import threading
from typing import Any

import grpc

from seed_rl.grpc import wire
from seed_rl.grpc.errors import CallError, ConnectionLost, StatusCode, Timeout, WireError

_CALL_ID = struct.Struct("<8xQ")


class CallStream:
    """Sends calls and hands each reply to the thread that waits for it.

    Three threads work per stream, as grpcio's blocking API has it: one sends what `call` queues,
    one receives, and gRPC's own runs `_deliver` when a message has come. That one wakes the caller
    directly, so the receiving thread, which only asks for the next message, costs no latency.
    """

    def __init__(
        self, channel: grpc.Channel, method: str, metadata: list[tuple[str, str]], address: str
    ):
        self._address = address
        self._ids = itertools.count(1)  # next() on it is atomic.
        self._lock = threading.Lock()
        # Entries are added under _lock; whoever pops one, which is atomic, wakes its thread.
        self._waiting: dict[int, _Waiter] = {}
        self._broken: str | None = None  # Why no more calls are possible. Guarded by _lock.
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        requests = iter(self._outgoing.get, None)
        connect = channel.stream_stream(method, response_deserializer=self._deliver)
        self._rpc = connect(requests, metadata=metadata)
        threading.Thread(target=self._receive, name="seed_rl-receive", daemon=True).start()

    def next_id(self) -> int:
        """A call id that was not used before on this stream."""
        return next(self._ids)

    def call(self, call_id: int, message: bytes, timeout_s: float | None) -> wire.Frame:
        """Sends a call frame and waits for its reply.

        Raises:
          CallError: if the reply is an error frame.
          ConnectionLost: if the stream broke, or the server says that it closes.
          Timeout: after `timeout_s`.
        """
        waiter = _Waiter()
        with self._lock:
            if self._broken is not None:
                raise ConnectionLost(self._broken)
            self._waiting[call_id] = waiter
        self._outgoing.put(message)
        try:
            answered = waiter.done.acquire(timeout=-1 if timeout_s is None else timeout_s)
        finally:  # Also when Ctrl-C interrupts the wait.
            self._waiting.pop(call_id, None)
        if not answered:
            raise Timeout(f"{self._address}: no answer within {timeout_s:g} s")
        if waiter.data is None:
            raise ConnectionLost(self._broken)
        return self._decode(waiter.data)

    def close(self, reason: str) -> None:
        """Ends the stream; callers still waiting get `ConnectionLost` with `reason`."""
        self._break(reason)
        self._outgoing.put(None)
        self._rpc.cancel()

    def _decode(self, data: bytes) -> wire.Frame:
        try:
            frame = wire.decode(data)
        except WireError as error:
            raise CallError(StatusCode.INTERNAL, f"malformed reply: {error}") from None
        if frame.kind == wire.KIND_ERROR:
            if frame.code == StatusCode.UNAVAILABLE:
                raise ConnectionLost(f"{self._address}: {frame.message}")
            raise CallError(frame.code, frame.message)
        if frame.kind != wire.KIND_REPLY:
            raise CallError(StatusCode.INTERNAL, "malformed reply: it is a call")
        return frame

    def _deliver(self, data: bytes) -> Any:
        """Runs in gRPC's thread, in place of deserialization, and must not raise."""
        if len(data) < _CALL_ID.size:
            self._break(f"{self._address}: the server sent {len(data)} bytes, which is no frame")
            return True
        (call_id,) = _CALL_ID.unpack_from(data)
        waiter = self._waiting.pop(call_id, None)
        if waiter is not None:
            waiter.data = data
            waiter.done.release()
        elif call_id == wire.UNREADABLE_CALL_ID:
            # One of our calls will never be answered, and nobody knows which.
            self._break(f"{self._address}: the server could not read a call")
        return True  # None would mean failure. Late replies to timed-out calls are dropped.

    def _receive(self) -> None:
        try:
            for _ in self._rpc:  # Each step asks gRPC for one more message.
                pass
            reason = "the server ended the stream"
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        self._break(f"{self._address}: {reason}")
        self._outgoing.put(None)

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
    """A thread's wait for its reply: a lock that opens when `data` (None: broken) is there."""

    __slots__ = ("data", "done")

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.done = threading.Lock()
        self.done.acquire()
