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
        if is_free(port + apart, host) and is_free(port, host):
            return port
    raise OSError(f"No free port on {host}: {_ATTEMPTS} random ones are in use.")


def is_free(port: int, host: str = "localhost") -> bool:
    """Whether a program may listen at a port, on every address of the host.

    Raises:
      OSError: this user may not use the port, or the host has no address on this machine.
    """
    bound, missing = False, None
    with contextlib.ExitStack() as stack:
        for family, kind, protocol, _, place in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            try:
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                # Closed connections of an earlier program do not count.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(place)
                bound = True
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    return False
                missing = error  # "localhost" may include ::1 even on a machine without IPv6.
    if not bound and missing is not None:
        raise missing
    return True
