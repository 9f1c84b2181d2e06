"""Ports that are free at every address of a name."""

import contextlib
import errno
import socket
from pathlib import Path

from seed_rl.launch import ports


def test_a_port_in_use():
    """Guards TensorBoard's address; closed connections do not count."""
    with socket.create_server(("localhost", 0)) as listener:
        place = listener.getsockname()[:2]
        assert not ports.is_free(place[1])
        with socket.create_connection(place):
            listener.accept()[0].close()
    assert ports.is_free(place[1])


def test_a_free_port_can_be_bound_at_every_address():
    """Guards a learner's port while it loads TensorFlow: no outgoing connection is given it.

    Of every address that the machine has: ::1 may be a name's address without IPv6.
    """
    port, bound = ports.free_port(), 0
    first, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert 1024 < port < max(first, 32_768)
    places = socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
    with contextlib.ExitStack() as stack:
        for family, kind, protocol, _, place in places:
            try:
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                listener.bind(place)
                bound += 1
            except OSError as error:
                assert error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
    assert bound


def test_the_port_above_is_free_too(monkeypatch):
    """Guards the port at which learners exchange gradients."""
    free = ports.free_port("0.0.0.0", apart=100)
    with socket.create_server(("", 0)) as taken:
        tried = [taken.getsockname()[1] - 100, free]
        monkeypatch.setattr(ports.random.SystemRandom, "sample", lambda *_: tried)
        assert ports.free_port("0.0.0.0", apart=100) == free
