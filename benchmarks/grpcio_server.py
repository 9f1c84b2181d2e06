"""The op's server in plain Python grpcio, to measure a batching server without the op.

It speaks the same wire format and does the same work: reads calls from the clients' streams, joins
waiting calls into a batch, runs the function on it and sends each caller its rows.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import numpy as np

import seed_rl
from seed_rl.grpc import structures, wire
from seed_rl.grpc.errors import StatusCode, WireError
from seed_rl.testing.scripted_learner import serve_methods


class Server:
    """Serves one function of NumPy arrays [batch, ...]."""

    def __init__(
        self,
        address: str,
        fn: Callable[..., Sequence[np.ndarray]],
        name: str,
        arguments: Sequence[structures.TensorSpec],
        outputs: structures.Structure,
    ):
        """Starts serving at `address`.

        Args:
          address: "unix:/path" or "host:port"; port 0 picks a free port, see attribute `port`.
          fn: takes the batched argument arrays, returns the batched output arrays.
          name: name that clients call.
          arguments: specs; the first dimension (None) is the batch.
          outputs: nest of specs; the first dimension (None) is the batch.
        """
        self._fn = fn
        self._arguments = list(arguments)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self.counters = {"calls": 0, "batches": 0, "errors": 0}
        self._description = json.dumps(
            {
                "protocol": wire.PROTOCOL_VERSION,
                "version": seed_rl.__version__,
                "functions": [
                    {
                        "name": name,
                        "batch": 0,
                        "arguments": structures.to_json(tuple(arguments)),
                        "outputs": structures.to_json(outputs),
                    }
                ],
            }
        ).encode()
        # Each open stream occupies a thread.
        self._server, self.port = serve_methods(
            address, self.describe, self.stats, self.call, threads=64
        )
        self._batcher = threading.Thread(target=self._run, daemon=True)
        self._batcher.start()

    def shutdown(self) -> None:
        """Stops serving, and breaks open streams."""
        self._server.stop(None).wait()
        self._calls.put(None)
        self._batcher.join()

    def describe(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Handles Describe."""
        del request, context
        return self._description

    def stats(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Handles Stats."""
        del request, context
        return json.dumps({"functions": self.counters, "status": {}}).encode()

    def call(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        """Handles Call: one client's stream."""
        del context
        replies: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(requests, replies), daemon=True).start()
        return iter(replies.get, None)

    def _read(self, requests: Iterator[bytes], replies: Any) -> None:
        try:
            for request in requests:
                try:
                    self._calls.put(_Call(request, self._arguments, replies))
                except _Refused as refused:
                    self.counters["errors"] += 1
                    replies.put(wire.encode_error(refused.call_id, refused.code, str(refused)))
        except Exception:  # noqa: BLE001 - grpcio raises a bare Exception when the client is gone.
            pass
        replies.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            batch = [call]
            while not self._calls.empty():
                call = self._calls.get()
                if call is None:
                    return
                batch.append(call)
            self._run_batch(batch)

    def _run_batch(self, batch: list[_Call]) -> None:
        self.counters["calls"] += len(batch)
        self.counters["batches"] += 1
        columns = zip(*(call.tensors for call in batch), strict=True)
        try:
            outputs = self._fn(*(np.concatenate(column) for column in columns))
        except Exception as error:  # noqa: BLE001 - any failure of the function is the callers'.
            self.counters["errors"] += len(batch)
            for call in batch:
                call.replies.put(wire.encode_error(call.call_id, StatusCode.UNKNOWN, str(error)))
            return
        start = 0
        for call in batch:
            stop = start + call.rows
            rows = [out[start:stop] for out in outputs]
            if not call.batched:
                rows = [row.reshape(row.shape[1:]) for row in rows]
            call.replies.put(wire.encode_reply(call.call_id, rows))
            start = stop


class _Refused(Exception):
    def __init__(self, call_id: int, code: int, message: str):
        super().__init__(message)
        self.call_id = call_id
        self.code = code


class _Call:
    """One call waiting for its batch; its tensors always have the leading dimension."""

    def __init__(self, data: bytes, arguments: list[structures.TensorSpec], replies: Any):
        invalid = StatusCode.INVALID_ARGUMENT
        try:
            frame = wire.decode(data)
        except WireError as error:
            call_id = int.from_bytes(data[8:16], "little")
            if len(data) < 24 or data[:4] != wire.MAGIC:
                call_id = wire.UNREADABLE_CALL_ID
            raise _Refused(call_id, invalid, str(error)) from None
        self.call_id, self.tensors, self.replies = frame.call_id, frame.tensors, replies
        if frame.kind != wire.KIND_CALL or frame.code != 0:
            raise _Refused(frame.call_id, invalid, f"There is no function {frame.code}.")
        if len(self.tensors) != len(arguments):
            count = len(self.tensors)
            message = f"Expects {len(arguments)} arguments, but {count} is provided"
            raise _Refused(frame.call_id, invalid, message)
        self.batched = bool(arguments) and self.tensors[0].ndim == len(arguments[0].shape or ())
        if not self.batched:
            self.tensors = [tensor[np.newaxis] for tensor in self.tensors]
        self.rows = len(self.tensors[0]) if self.tensors else 1
        for i, (tensor, spec) in enumerate(zip(self.tensors, arguments, strict=True)):
            if wire.dtype_name(tensor) != spec.dtype:
                given = wire.dtype_name(tensor)
                message = f"Expects arg[{i}] to be {spec.dtype} but {given} is provided"
                raise _Refused(frame.call_id, invalid, message)
            if tensor.shape != (self.rows, *(spec.shape or ())[1:]):
                message = f"Expects arg[{i}] to have shape {spec.shape}, but had {tensor.shape}"
                raise _Refused(frame.call_id, invalid, message)
