"""The client for programs without TensorFlow, with one method per server function.

    with Client("unix:/tmp/agent") as client:
        actions = client.inference(env_ids, run_ids, env_outputs, raw_rewards, successes)

Arguments and results are nests of NumPy arrays. Clients are thread-safe: concurrent calls share one
stream and are answered in any order.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from seed_rl.grpc import diagnosis, structures, wire
from seed_rl.grpc.call_stream import CallStream
from seed_rl.grpc.channel_options import ClientOptions, warn_of_bare_token
from seed_rl.grpc.errors import CallError, CallTooLargeError, ConnectionLost, StatusCode, WireError

_SERVICE = "/seed_rl.Inference/"
_NO_SERVER = "status: 503"  # HAProxy's answer, as gRPC reports it.
_PAUSES_S = (0.1, 2.0)  # First and longest pause between attempts.


class Client:
    """A connection to a server, with one method per bound function.

    A function is only reachable through `functions` if its name is not a Python identifier or
    collides with the client's own methods (`close`, `stats`, ...). Once a call has raised
    `ConnectionLost` the client is unusable: close it and create a new one.

    Attributes:
      functions: `Function` by name.
    """

    def __init__(self, address: str, options: ClientOptions | None = None):
        """Connects, waiting for the server if necessary.

        Args:
          address: "unix:/path" or "host:port".
          options: timeouts, token, TLS; the default trusts the network.

        Raises:
          ConnectionLost: if no server answers within `options.connect_timeout_s`.
          CallError: if the server rejects this client or speaks another protocol.
          WireError: if the server's description is malformed.
          UserError: if the native library was not built.
        """
        self._address = address
        self._options = options or ClientOptions()
        self._closed = False
        self._process = os.getpid()
        warn_of_bare_token(self._options, address)
        self._stream = CallStream(address, self._options)
        self._description = self._connect()
        self._stream.open()
        descriptions = self._description.get("functions")
        if not isinstance(descriptions, list):
            raise WireError(f"The server at {address} does not list its functions.")
        functions = [Function(self, i, entry) for i, entry in enumerate(descriptions)]
        self.functions = {function.name: function for function in functions}
        for name, function in self.functions.items():
            if not hasattr(self, name):
                setattr(self, name, function)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # Only reached for unbound names; for type checkers, any name may be bound.
        known = ", ".join(self.__dict__.get("functions", {})) or "none"
        raise AttributeError(f"The server has no function '{name}'; its functions: {known}.")

    def describe(self) -> dict[str, Any]:
        """The server's answer to Describe when the client connected."""
        return self._description

    def stats(self) -> dict[str, Any]:
        """The server's counters and status.

        Raises:
          ConnectionLost: if the server does not answer in time.
        """
        if self._closed:
            raise ConnectionLost(f"{self._address}: client closed")
        timeout_s = self._options.connect_timeout_s
        code, answer = self._stream.request(f"{_SERVICE}Stats", timeout_s, wait=False)
        if code:
            raise ConnectionLost(f"{self._address}: {StatusCode(code).name}: {_text_of(answer)}")
        return self._document("Stats", answer)

    def close(self) -> None:
        """Ends the connection; calls in flight raise `ConnectionLost`.

        Does nothing in a forked process: the connection is the parent's.
        """
        if os.getpid() != self._process:
            return
        self._closed = True
        self._stream.close("client closed")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _connect(self) -> dict[str, Any]:
        """The server's description."""
        deadline = time.monotonic() + self._options.connect_timeout_s
        pause_s, longest_s = _PAUSES_S
        refusal: tuple[int, str] | None = None
        while True:
            code, answer = self._stream.request(
                f"{_SERVICE}Describe", deadline - time.monotonic(), wait=True
            )
            if not code:
                break
            # A server that is shutting down answers UNAVAILABLE although we wait, and so does a
            # proxy without its server.
            if code != StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                raise self._connect_error(*(refusal or (code, _text_of(answer))))
            refusal = code, _text_of(answer)
            time.sleep(pause_s * random.uniform(0.5, 1))  # Thousands may be waiting.
            pause_s = min(2 * pause_s, longest_s)
        description = self._document("Describe", answer)
        protocol = description.get("protocol")
        if protocol != wire.PROTOCOL_VERSION:
            raise CallError(
                StatusCode.FAILED_PRECONDITION,
                f"the server at {self._address} speaks protocol {protocol}, this client "
                f"{wire.PROTOCOL_VERSION}: install the same version of seed_rl on both sides",
            )
        return description

    def _connect_error(self, code: int, why: str) -> Exception:
        if code in (StatusCode.DEADLINE_EXCEEDED, StatusCode.UNAVAILABLE):
            why = diagnosis.why_unreachable(self._address, self._options) or why
            if _NO_SERVER in why:
                why = "the proxy there has no server behind it (yet)"
            return ConnectionLost(
                f"no server answered at {self._address} within "
                f"{self._options.connect_timeout_s:g} s: {why}"
            )
        hints: dict[int, str] = {
            StatusCode.UNAUTHENTICATED: "give this client the server's token",
            StatusCode.UNIMPLEMENTED: f"the gRPC server at {self._address} is not SEED RL's",
        }
        return CallError(code, f"{why}; {hints[code]}" if code in hints else why)

    def _document(self, method: str, answer: bytes) -> dict[str, Any]:
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise WireError(f"{method} at {self._address} is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise WireError(f"{method} at {self._address} is not a JSON object.")
        return document


class Function:
    """A server function: converts and sends arguments, waits for the outputs.

    Attributes:
      name: the function's name.
      batch: None if calls are not batched, 0 for a dynamic leading dimension, otherwise its size.
      arguments: tuple of nests of `structures.TensorSpec`.
      outputs: nest of `structures.TensorSpec`.
    """

    def __init__(self, client: Client, index: int, description: dict[str, Any]):
        """Reads one entry of "functions" in the Describe answer.

        Raises:
          WireError: if the entry is malformed.
        """
        try:
            self.name = str(description["name"])
            self.batch: int | None = description["batch"]
            self.arguments = structures.from_json(description["arguments"])
            self.outputs = structures.from_json(description["outputs"])
        except (KeyError, TypeError) as error:
            raise WireError(f"A function's description is incomplete: {error!r}") from None
        if not isinstance(self.arguments, tuple) or type(self.batch) not in (int, type(None)):
            raise WireError(f"The description of {self.name} has invalid arguments or batch.")
        self._specs = structures.specs(self.arguments)
        self._index = index
        self._stream = client._stream
        self._timeout_s = client._options.call_timeout_s
        self._max_bytes = client._options.max_message_bytes

    def __call__(self, *args: Any) -> Any:
        """Calls the function.

        Args:
          *args: nests of arrays with the structure of `arguments`; lists are nests too. If the
            function is batched, all arrays have the same leading dimension, or none has one.

        Returns:
          A nest of arrays with the structure of `outputs`; they belong to the caller and are
          writable. Strings are object arrays of bytes.

        Raises:
          CallError: if the arguments do not match, or the function failed.
          ConnectionLost: if the server went away.
          Timeout: if there is no reply within `ClientOptions.call_timeout_s`.
        """
        return self._decode(self._stream.call(*self._encode(args), self._timeout_s))

    def start(self, *args: Any) -> Callable[[], Any]:
        """Sends a call without waiting for its outputs: the returned function does, once.

        Meanwhile the caller may do other work. The arguments may be overwritten.

        Raises:
          CallError, ConnectionLost, Timeout: see `__call__`; also raised by the returned function.
        """
        call = self._stream.start(*self._encode(args))
        started = time.monotonic()

        def outputs() -> Any:
            remaining = None
            if self._timeout_s is not None:
                remaining = max(0.0, started + self._timeout_s - time.monotonic())
            return self._decode(self._stream.finish(call, self._timeout_s, remaining))

        return outputs

    def _encode(self, args: tuple[Any, ...]) -> tuple[int, bytes]:
        """(id, frame) of a new call."""
        tensors = self._arrays(args)
        call_id = self._stream.next_id()
        try:
            message = wire.encode_call(call_id, self._index, tensors)
        except (WireError, UnicodeEncodeError) as error:
            raise _invalid(str(error)) from None
        if len(message) > self._max_bytes:
            raise CallTooLargeError(
                f"the call has {len(message)} bytes, more than ClientOptions.max_message_bytes "
                f"({self._max_bytes})",
            )
        return call_id, message

    def _decode(self, frame: wire.Frame) -> Any:
        # Copies are aligned and writable, and cheap: replies are actions, not observations.
        outputs = [t if t.dtype.kind == "O" else t.copy() for t in frame.tensors]
        try:
            return structures.pack(self.outputs, outputs)
        except WireError as error:
            raise CallError(StatusCode.INTERNAL, str(error)) from None

    def _arrays(self, args: tuple[Any, ...]) -> list[np.ndarray]:
        """The arguments as arrays of the function's types; the server checks their shapes."""
        try:
            leaves = structures.unpack_arguments(self.arguments, args)
        except structures.StructureError as error:
            raise _invalid(str(error)) from None
        for i, (leaf, spec) in enumerate(zip(leaves, self._specs, strict=True)):
            if type(leaf) is not np.ndarray or leaf.dtype != spec.numpy_dtype:
                leaves[i] = _convert(leaf, spec, i)
        return leaves


def _convert(value: Any, spec: structures.TensorSpec, i: int) -> np.ndarray:
    try:
        array = structures.to_array(value, spec)
    except (ValueError, OverflowError) as error:
        raise _invalid(f"arg[{i}]: {error}") from None
    given = wire.dtype_name(array)
    if given != spec.dtype:
        raise _invalid(f"Expects arg[{i}] to be {spec.dtype} but {given} is provided")
    return array


def _invalid(message: str) -> CallError:
    return CallError(StatusCode.INVALID_ARGUMENT, message)


def _text_of(reason: bytes) -> str:
    return reason.decode("utf-8", "replace")
