"""TCP ports of this machine."""

from __future__ import annotations

import contextlib
import errno
import socket

_ATTEMPTS = 100


def free_port(host: str = "localhost") -> int:
    """A TCP port that is free on every address of the host.

    Raises:
      OSError: the host has no address on this machine.
    """
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(_InUse):
            return _bind_everywhere(host)
    return _bind_everywhere(host)


class _InUse(OSError):
    """The port is free on one address but in use on another."""


def _bind_everywhere(host: str) -> int:
    port, missing = 0, None
    with contextlib.ExitStack() as stack:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM
        ):
            try:
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                listener.bind((place[0], port, *place[2:]))
            except OSError as error:
                if port and error.errno == errno.EADDRINUSE:
                    raise _InUse(*error.args) from error
                missing = error  # "localhost" may include ::1 even on a machine without IPv6.
                continue
            port = listener.getsockname()[1]
    if not port and missing is not None:
        raise missing
    return port
