"""Options of the server and its clients (no TensorFlow)."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """What a server grants its clients.

    Attributes:
      max_batch_size: largest batch of a function with a dynamic leading dimension.
      batch_timeout_ms: once such a function is free and has a caller, how long to wait for more
        callers; 0 takes what is there.
      max_message_bytes: a client that sends a larger message is disconnected.
      max_connections: further clients are turned away.
      max_calls_per_peer: calls of one client that may be waiting or running; the server reads no
        further ones until it has answered some.
      max_bytes_per_peer: the same limit in bytes of the calls.
      token: shared secret that clients must present; None lets everybody in.
      tls_certificate: path of the server's certificate chain (PEM); None: no encryption. Unix
        sockets are never encrypted: their file permissions guard them.
      tls_key: path of the certificate's private key (PEM).
      keepalive_s: how often a silent connection is probed; one that does not answer is closed.
      threads: network threads; 0 chooses by the number of cores.
    """

    max_batch_size: int = 1024
    batch_timeout_ms: float = 0.0
    max_message_bytes: int = 64 * 1024 * 1024
    max_connections: int = 4096
    max_calls_per_peer: int = 1024
    max_bytes_per_peer: int = 256 * 1024 * 1024
    token: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    keepalive_s: float = 20.0
    threads: int = 0


@dataclasses.dataclass(frozen=True)
class ClientOptions:
    """How a client connects and how long it waits.

    Attributes:
      connect_timeout_s: how long to wait for the server to be there.
      call_timeout_s: a call without an answer after this fails; None waits for ever.
      token: the server's shared secret.
      tls_ca: path of the certificate (PEM) that must have signed the server's; None: no
        encryption. Unix sockets are never encrypted.
      keepalive_s: how often a silent connection is probed; one that does not answer is given up.
      max_message_bytes: larger replies end the connection, larger calls are refused here.
    """

    connect_timeout_s: float = 60.0
    call_timeout_s: float | None = None
    token: str | None = None
    tls_ca: str | None = None
    keepalive_s: float = 20.0
    max_message_bytes: int = 64 * 1024 * 1024
