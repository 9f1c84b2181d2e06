"""TCP ports of this machine."""

from __future__ import annotations

import contextlib
import errno
import random
import socket

_PORTS = range(10_000, 32_000)  # Below the ports that Linux gives to outgoing connections.
_ATTEMPTS = 100


def free_port(host: str = "localhost", apart: int = 0) -> int:
    """A TCP port that is free on every address of the host.

    No outgoing connection takes it before somebody listens there: loading TensorFlow may take a
    minute.

    Args:
      host: a name or address of this machine.
      apart: the port that much above is free, too.

    Raises:
      OSError: the host has no address on this machine, or no free port was found.
    """
    for port in random.SystemRandom().sample(_PORTS, _ATTEMPTS):  # Seeds may be equal elsewhere.
        with contextlib.suppress(_InUse):
            _bind_everywhere(host, port + apart)
            return _bind_everywhere(host, port)
    raise OSError(f"{_ATTEMPTS} ports of {host} are in use.")


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


def _bind_everywhere(host: str, port: int) -> int:
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
