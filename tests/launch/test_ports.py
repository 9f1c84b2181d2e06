"""Ports that are free at every address of a name."""

import socket

from seed_rl.launch import ports


def test_a_free_port_can_be_bound_at_every_address():
    port = ports.free_port()
    for family, kind, protocol, _, place in socket.getaddrinfo(
        "localhost", port, type=socket.SOCK_STREAM
    ):
        with socket.socket(family, kind, protocol) as listener:
            listener.bind(place)
            listener.listen()
