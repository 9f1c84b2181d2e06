"""A client's connection, in the native transport library: requests, and the stream of calls.

A call through grpcio would pass three Python threads; here, the calling thread itself waits for the
socket, without Python's global lock. A call takes a third of the CPU time, which an actor pays at
each step.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import weakref
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.native import native_library
from seed_rl.grpc import wire
from seed_rl.grpc.channel_options import ClientOptions, TlsFiles
from seed_rl.grpc.errors import CallError, ConnectionLost, StatusCode, Timeout, WireError

_LIBRARY = "libseed_transport"
_REPLY, _PENDING = 0, 1  # SeedFrameResult.
_SLICE_S = 0.25  # Python handles signals, such as Ctrl-C, only between waits.
_FOREVER = float("inf")


class CallStream:
    """Sends calls and waits for their replies; thread-safe."""

    def __init__(self, address: str, options: ClientOptions):
        """Creates the connection, without waiting for the server.

        Raises:
          ConnectionLost: the certificate cannot be read.
          UserError: the native library was not built, or does not load.
        """
        self._address = address
        self._ids = itertools.count(1)  # next() on it is atomic.
        self._library = _library()
        encrypted = options.encrypts(address)
        try:
            tls = options.tls_files() if encrypted else TlsFiles()
        except OSError as error:
            raise ConnectionLost(f"cannot read the TLS certificate: {error}") from None
        self._stream = self._library.seed_frame_stream_open(
            address.encode(),
            (options.token or "").encode(),
            encrypted,
            *tls,
            options.keepalive_s,
            options.max_message_bytes,
        )
        finalizer = weakref.finalize(self, _delete, self._library, self._stream, os.getpid())
        finalizer.atexit = False  # Daemon threads may still be in calls when Python exits.

    def request(self, method: str, timeout_s: float, wait: bool) -> tuple[int, bytes]:
        """Makes a request of one of the server's unary methods.

        Args:
          method: "/package.Service/Method".
          timeout_s: for the answer.
          wait: for a server that cannot be reached yet.

        Returns:
          gRPC's code, and the answer or, if the code is not 0, the reason.
        """
        library = self._library
        request = library.seed_frame_stream_request(
            self._stream, method.encode(), max(timeout_s, 0.0), wait
        )
        code, answer = ctypes.c_int(), _Answer()
        try:
            result = _PENDING
            while result == _PENDING:
                result = library.seed_request_wait(
                    request, _SLICE_S, ctypes.byref(code), *answer.outputs
                )
        finally:
            library.seed_request_delete(request)
        return code.value, answer.take(library)

    def open(self) -> None:
        """Opens the stream, before the first call; calls report whether that succeeded."""
        self._library.seed_frame_stream_start(self._stream)

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
        wait = _SLICE_S if timeout_s is None else min(timeout_s, _SLICE_S)
        call = self.start(call_id, message, wait)
        return self.finish(call, timeout_s, None if timeout_s is None else timeout_s - wait)

    def start(self, call_id: int, message: bytes, wait_s: float = 0.0) -> _Call:
        """Sends a call frame, and waits up to `wait_s` for its reply; `finish` must follow."""
        call = _Call(call_id)
        try:
            call.result = self._library.seed_frame_stream_call(
                self._stream, call_id, message, len(message), wait_s, *call.answer.outputs
            )
        except BaseException:  # Ctrl-C.
            self._library.seed_frame_stream_forget(self._stream, call_id)
            raise
        return call

    def finish(self, call: _Call, timeout_s: float | None, remaining_s: float | None) -> wire.Frame:
        """Waits for the reply to a started call.

        Args:
          call: from `start`.
          timeout_s: limit of the whole call, for the message.
          remaining_s: time left of it; None: no limit.

        Raises:
          CallError, ConnectionLost, Timeout: see `call`.
        """
        library, stream = self._library, self._stream
        remaining = _FOREVER if remaining_s is None else remaining_s
        try:
            while call.result == _PENDING:  # Looks once even if time is up.
                wait = min(remaining, _SLICE_S)
                call.result = library.seed_frame_stream_wait(
                    stream, call.call_id, wait, *call.answer.outputs
                )
                remaining -= wait
                if remaining <= 0:
                    break
        finally:  # Also when Ctrl-C interrupts the wait.
            if call.result == _PENDING:
                library.seed_frame_stream_forget(stream, call.call_id)
        if call.result == _PENDING:
            raise Timeout(f"{self._address}: no answer within {timeout_s:g} s")
        data = call.answer.take(library)
        if call.result == _REPLY:
            return self._decode(data)
        raise ConnectionLost(f"{self._address}: {data.decode('utf-8', 'replace')}")

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

    def close(self, reason: str) -> None:
        """Ends the stream; callers still waiting get `ConnectionLost` with `reason`."""
        self._library.seed_frame_stream_close(self._stream, reason.encode())


class _Answer:
    """Where the library puts an answer."""

    __slots__ = ("_data", "_size", "outputs")

    def __init__(self) -> None:
        self._data, self._size = ctypes.c_void_p(), ctypes.c_size_t()
        self.outputs = ctypes.byref(self._data), ctypes.byref(self._size)

    def take(self, library: Any) -> bytes:
        """The answer, once there is one."""
        data = ctypes.string_at(self._data, self._size.value)
        library.seed_frame_stream_free(self._data)
        return data


class _Call:
    """A pending call."""

    __slots__ = ("answer", "call_id", "result")

    def __init__(self, call_id: int):
        self.call_id = call_id
        self.result = _PENDING
        self.answer = _Answer()


def _delete(library: Any, stream: int, creator: int) -> None:
    if os.getpid() == creator:  # gRPC's threads do not exist in forked processes.
        library.seed_frame_stream_delete(stream)


@functools.cache
def _library() -> Any:
    # As the TensorFlow ops load it: its gRPC must prefer its own symbols to TensorFlow's, and
    # gRPC's threads outlive all handles.
    mode = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND | os.RTLD_NODELETE
    file = native_library.path(_LIBRARY)
    try:
        library = ctypes.CDLL(str(file), mode)
    except OSError as error:
        raise UserError(
            f"The native library {file} does not load: {error}. Is the gRPC system package "
            f"(libgrpc++1.51 on Debian) installed? {native_library.how_to_build()}"
        ) from error
    stream, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    outputs = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "frame_stream_open": (
            stream,
            [text, text, ctypes.c_bool, text, text, text, ctypes.c_double, ctypes.c_int64],
        ),
        "frame_stream_request": (stream, [stream, text, ctypes.c_double, ctypes.c_bool]),
        "request_wait": (
            ctypes.c_int,
            [stream, ctypes.c_double, ctypes.POINTER(ctypes.c_int), *outputs],
        ),
        "request_delete": (None, [stream]),
        "frame_stream_start": (None, [stream]),
        "frame_stream_call": (
            ctypes.c_int,
            [stream, number, text, ctypes.c_size_t, ctypes.c_double, *outputs],
        ),
        "frame_stream_wait": (ctypes.c_int, [stream, number, ctypes.c_double, *outputs]),
        "frame_stream_forget": (None, [stream, number]),
        "frame_stream_free": (None, [ctypes.c_void_p]),
        "frame_stream_close": (None, [stream, text]),
        "frame_stream_delete": (None, [stream]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"seed_{name}")
        function.restype, function.argtypes = result, arguments
    return library
