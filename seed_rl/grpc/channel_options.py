"""Options of servers and clients."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import NamedTuple

from seed_rl.common.errors import UserError
from seed_rl.common.system import tokens
from seed_rl.grpc import addresses

_KEEPALIVE_BELOW_S = 2**31 // 2000  # Twice as much, in milliseconds, is an int.


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """Limits, authentication and encryption of a server.

    Attributes:
      max_batch_size: largest batch of a function with a dynamic leading dimension.
      batch_timeout_ms: how long such a function, once it is free and has a call, waits for more
        calls; 0: not at all.
      max_message_bytes: a client that sends a larger message is disconnected.
      max_connections: further clients are rejected.
      max_calls_per_peer: unanswered calls per client; at the limit the server stops reading from
        the client.
      max_bytes_per_peer: the same limit in bytes.
      max_bytes: unanswered calls and unsent replies of all clients together, in bytes; None: an
        eighth of the memory that is free when the server is created, at least 1 GiB.
      token: shared secret that clients must present, of visible ASCII characters and inner spaces;
        None: no authentication. Not part of `repr`.
      tls_certificate: path of the server's certificate chain (PEM); None: no encryption. Unix
        sockets are never encrypted; their file permissions protect them.
      tls_key: path of the certificate's private key (PEM).
      keepalive_s: interval of probes on a silent connection; it is closed if a probe is not
        answered.
      threads: network threads; 0: depends on the number of cores.
      insecure: serve other machines even without token and TLS. Otherwise the server only starts
        without both at addresses of this machine: localhost, 127.0.0.0/8, ::1 and Unix sockets.
    """

    max_batch_size: int = 1024
    batch_timeout_ms: float = 0.0
    max_message_bytes: int = 64 * 1024 * 1024
    max_connections: int = 4096
    max_calls_per_peer: int = 1024
    max_bytes_per_peer: int = 256 * 1024 * 1024
    max_bytes: int | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    tls_certificate: str | None = None
    tls_key: str | None = None
    keepalive_s: float = 20.0
    threads: int = 0
    insecure: bool = False

    def __post_init__(self) -> None:
        _check_positive(self, "max_batch_size", "max_message_bytes", "max_connections")
        _check_positive(self, "max_calls_per_peer", "max_bytes_per_peer")
        _check_positive(self, "keepalive_s", below=_KEEPALIVE_BELOW_S)
        if not 0 <= self.batch_timeout_ms < 2**31:  # Longer ones may overflow to none at all.
            raise UserError(
                f"batch_timeout_ms must be at least 0 and below {2**31}, "
                f"not {self.batch_timeout_ms}."
            )
        if self.threads < 0:
            raise UserError(f"threads must be at least 0, not {self.threads}.")
        if self.max_bytes is not None and self.max_bytes <= 0:
            raise UserError(f"max_bytes must be above 0, not {self.max_bytes}.")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise UserError("Set both tls_certificate and tls_key, or neither.")
        if self.token is not None:
            tokens.check(self.token)

    def check_exposed(self, address: str) -> None:
        """Checks that unauthenticated clients on other machines cannot call the functions.

        Raises:
          UserError: other machines can reach `address`, and there is neither token nor TLS.
        """
        protected = self.token is not None or self.tls_certificate is not None
        if addresses.is_remote(address) and not (protected or self.insecure):
            raise UserError(
                f"Refusing to serve {address}, which other machines can reach, without token and "
                "TLS: anyone there could call the functions. Give ServerOptions a token, "
                "tls_certificate and tls_key; or, in a network where you trust everyone, "
                "insecure=True. Programs on this machine need only localhost or unix:/path."
            )

    def encrypts(self, address: str) -> bool:
        """Whether connections to `address` are encrypted."""
        return self.tls_certificate is not None and not addresses.is_unix(address)


@dataclasses.dataclass(frozen=True)
class ClientOptions:
    """Timeouts, authentication and encryption of a client.

    Attributes:
      connect_timeout_s: how long to wait for the server.
      call_timeout_s: how long to wait for a reply; None: no limit.
      token: the server's shared secret; None: the server has none. Not part of `repr`.
      tls_ca: path of the certificate (PEM) that signed the server's; None: no encryption. Unix
        sockets are never encrypted.
      tls_cert: path of this client's own certificate chain (PEM), which a proxy in front of the
        server may ask for; None: none.
      tls_key: path of the private key (PEM) of `tls_cert`.
      keepalive_s: interval of probes on a silent connection; it is closed if a probe is not
        answered.
      max_message_bytes: larger calls are rejected; a larger reply breaks the connection.
    """

    connect_timeout_s: float = 60.0
    call_timeout_s: float | None = None
    token: str | None = dataclasses.field(default=None, repr=False)
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    keepalive_s: float = 20.0
    max_message_bytes: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        _check_positive(self, "connect_timeout_s", "max_message_bytes")
        _check_positive(self, "keepalive_s", below=_KEEPALIVE_BELOW_S)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UserError("Set both tls_cert and tls_key, or neither.")
        if self.tls_cert is not None and self.tls_ca is None:
            raise UserError("tls_cert needs tls_ca, which turns on TLS.")
        if self.call_timeout_s is not None:
            _check_positive(self, "call_timeout_s")
        if self.token is not None:
            tokens.check(self.token)

    def encrypts(self, address: str) -> bool:
        """Whether the connection to `address` is encrypted."""
        return bool(self.tls_ca) and not addresses.is_unix(address)

    def tls_files(self) -> TlsFiles:
        """The contents of `tls_ca`, `tls_cert` and `tls_key`.

        Raises:
          OSError: one cannot be read.
        """
        paths = (self.tls_ca, self.tls_cert, self.tls_key)
        return TlsFiles(*(pathlib.Path(path).read_bytes() if path else b"" for path in paths))


class TlsFiles(NamedTuple):
    """What a client encrypts with: PEM, or empty."""

    authority: bytes = b""
    certificate: bytes = b""
    key: bytes = b""


def warn_of_bare_token(options: ServerOptions | ClientOptions, address: str) -> None:
    """Logs, once per address, if the token can be read on its way to `address`."""
    if options.token and addresses.is_public(address) and not options.encrypts(address):
        addresses.warn_of_bare_token(address)


def _check_positive(options: object, *names: str, below: int = 2**31) -> None:  # gRPC's limit.
    for name in names:
        value = getattr(options, name)
        if not 0 < value < below:
            raise UserError(f"{name} must be above 0 and below {below}, not {value}.")
