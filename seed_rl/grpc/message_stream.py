"""A bidirectional gRPC stream of bytes with a callback for each message, through grpcio."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import grpc

Metadata = tuple[tuple[str, str], ...]


class MessageStream:
    """A stream of bytes in both directions.

    grpcio's streams block: they take one thread to send, one to receive and one of grpcio's own,
    and every event wakes all of them. `native_stream` does without.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        method: str,
        metadata: Metadata,
        on_message: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ):
        """Starts a stream.

        Args:
          channel: channel to the server.
          method: "/package.Service/Method".
          metadata: sent when the stream starts.
          on_message: called on a gRPC thread for each message; must not raise or block.
          on_end: called once, with the reason, when the stream has ended.
        """
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._on_end = on_end

        def deliver(message: bytes) -> bool:
            # Deserializers run on gRPC's thread: this saves the switch to the receiving thread.
            on_message(message)
            return True

        start = channel.stream_stream(method, response_deserializer=deliver)
        self._rpc = start(iter(self._outgoing.get, None), metadata=metadata)
        threading.Thread(target=self._receive, name="seed_rl-receive", daemon=True).start()

    def send(self, message: bytes) -> None:
        """Queues a message for sending, in order; does nothing once the stream has ended."""
        self._outgoing.put(message)

    def cancel(self) -> None:
        """Ends the stream; `on_end` is still called."""
        self._rpc.cancel()

    def _receive(self) -> None:
        reason = "the server ended the stream"
        try:
            for _ in self._rpc:  # Each iteration requests one more message.
                pass
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}"
        self._outgoing.put(None)  # Ends grpcio's sending thread.
        self._on_end(reason)
