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


def is_free(port: int) -> bool:
    """Whether a program may listen at a port, on every address of localhost.

    Raises:
      OSError: this user may not use the port.
    """
    try:
        _bind_everywhere("localhost", port)
    except _InUse:
        return False
    return True


class _InUse(OSError):
    """The port is in use on an address."""


def _bind_everywhere(host: str, port: int = 0) -> int:
    bound, missing = False, None
    with contextlib.ExitStack() as stack:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, 0, type=socket.SOCK_STREAM
        ):
            try:
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                # Closed connections of an earlier program do not count.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((place[0], port, *place[2:]))
            except OSError as error:
                if port and error.errno == errno.EADDRINUSE:
                    raise _InUse(*error.args) from error
                missing = error  # "localhost" may include ::1 even on a machine without IPv6.
                continue
            port, bound = listener.getsockname()[1], True
    if not bound and missing is not None:
        raise missing
    return port
