"""Options of the server and its clients (no TensorFlow)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.errors import UserError


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

    def __post_init__(self) -> None:
        _check_positive(self, "max_batch_size", "max_message_bytes", "max_connections")
        _check_positive(self, "max_calls_per_peer", "max_bytes_per_peer", "keepalive_s")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UserError("tls_certificate and tls_key must be given together.")


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

    def __post_init__(self) -> None:
        _check_positive(self, "connect_timeout_s", "keepalive_s", "max_message_bytes")
        if self.call_timeout_s is not None:
            _check_positive(self, "call_timeout_s")


def _check_positive(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not 0 < value < 2**31:  # What gRPC takes.
            raise UserError(f"{name} is {value}; it must be above 0 and below {2**31}.")
