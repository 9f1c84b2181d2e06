"""The stream of calls of a client, in the native transport library.

A call through grpcio passes three Python threads; here, the calling thread itself waits for the
socket, without Python's global lock. A call takes a third of the CPU time, which an actor pays at
each step. Where the library is not available, `call_stream` does the same with grpcio.
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
from seed_rl.grpc.call_stream import decode_answer
from seed_rl.grpc.channel_options import ClientOptions, TlsFiles
from seed_rl.grpc.errors import ConnectionLost, Timeout

_LIBRARY = "libseed_transport"
_REPLY, _PENDING = 0, 1  # SeedFrameResult.
_SLICE_S = 0.25  # Python handles signals, such as Ctrl-C, only between waits.
_FOREVER = float("inf")


@functools.cache
def available() -> bool:
    """Whether the native library exists and can be loaded."""
    try:
        _library()
    except (UserError, OSError, AttributeError):  # Not built; no gRPC on the system; an older one.
        return False
    return True


class NativeCallStream:
    """Sends calls and waits for their replies; thread-safe."""

    def __init__(self, address: str, options: ClientOptions):
        """Opens the stream; a missing server is noticed by the first call.

        Raises:
          ConnectionLost: the certificate cannot be read.
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

    def start(self, call_id: int, message: bytes, wait_s: float = 0.0) -> _NativeCall:
        """Sends a call frame, and waits up to `wait_s` for its reply; `finish` must follow."""
        call = _NativeCall(call_id)
        try:
            call.result = self._library.seed_frame_stream_call(
                self._stream, call_id, message, len(message), wait_s, *call.outputs
            )
        except BaseException:  # Ctrl-C.
            self._library.seed_frame_stream_forget(self._stream, call_id)
            raise
        return call

    def finish(
        self, call: _NativeCall, timeout_s: float | None, remaining_s: float | None
    ) -> wire.Frame:
        """Waits for the reply to a started call.

        Args:
          call: from `start`.
          timeout_s: of the whole call, for the message.
          remaining_s: what is left of it; None: no limit.

        Raises:
          CallError, ConnectionLost, Timeout: see `call`.
        """
        library, stream = self._library, self._stream
        remaining = _FOREVER if remaining_s is None else remaining_s
        try:
            while call.result == _PENDING and remaining > 0:
                wait = min(remaining, _SLICE_S)
                call.result = library.seed_frame_stream_wait(
                    stream, call.call_id, wait, *call.outputs
                )
                remaining -= wait
        finally:  # Also when Ctrl-C interrupts the wait.
            if call.result == _PENDING:
                library.seed_frame_stream_forget(stream, call.call_id)
        if call.result == _PENDING:
            raise Timeout(f"{self._address}: no answer within {timeout_s:g} s")
        data = ctypes.string_at(call.answer, call.size.value)
        library.seed_frame_stream_free(call.answer)
        if call.result == _REPLY:
            return decode_answer(self._address, data)
        raise ConnectionLost(f"{self._address}: {data.decode('utf-8', 'replace')}")

    def close(self, reason: str) -> None:
        """Ends the stream; callers still waiting get `ConnectionLost` with `reason`."""
        self._library.seed_frame_stream_close(self._stream, reason.encode())


class _NativeCall:
    """A pending call: its state, and where the library puts its answer."""

    __slots__ = ("answer", "call_id", "outputs", "result", "size")

    def __init__(self, call_id: int):
        self.call_id = call_id
        self.result = _PENDING
        self.answer, self.size = ctypes.c_void_p(), ctypes.c_size_t()
        self.outputs = ctypes.byref(self.answer), ctypes.byref(self.size)


def _delete(library: Any, stream: int, creator: int) -> None:
    if os.getpid() == creator:  # gRPC's threads do not exist in forked processes.
        library.seed_frame_stream_delete(stream)


@functools.cache
def _library() -> Any:
    # As the TensorFlow ops load it: its gRPC must prefer its own symbols to TensorFlow's, and
    # gRPC's threads outlive all handles.
    mode = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND | os.RTLD_NODELETE
    library = ctypes.CDLL(str(native_library.path(_LIBRARY)), mode)
    stream, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64
    outputs = [ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)]
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "open": (
            stream,
            [text, text, ctypes.c_bool, text, text, text, ctypes.c_double, ctypes.c_int64],
        ),
        "call": (
            ctypes.c_int,
            [stream, number, text, ctypes.c_size_t, ctypes.c_double, *outputs],
        ),
        "wait": (ctypes.c_int, [stream, number, ctypes.c_double, *outputs]),
        "forget": (None, [stream, number]),
        "free": (None, [ctypes.c_void_p]),
        "close": (None, [stream, text]),
        "delete": (None, [stream]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"seed_frame_stream_{name}")
        function.restype, function.argtypes = result, arguments
    return library
