"""Who can reach an address, and what that means for the secrets sent there."""

from __future__ import annotations

import functools
import ipaddress
import logging

_UNIX = ("unix:", "unix-abstract:")


def is_unix(address: str) -> bool:
    """Whether the address is a Unix socket; these are never encrypted."""
    return address.startswith(_UNIX)


def is_public(address: str) -> bool:
    """Whether others may be able to reach the address: other machines, or any user of this one.

    A `unix:` socket is protected by the permissions of its file. A `unix-abstract:` socket has no
    file: every user of the machine may connect to it, and listen there when the server is down.
    """
    if is_unix(address):
        return not address.startswith("unix:")
    host = address.rpartition(":")[0].rpartition("/")[2].strip("[]")  # dns:///host:port
    if host.rstrip(".").lower() == "localhost":
        return False
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:  # A name.
        return True


def is_remote(address: str) -> bool:
    """Whether other machines may be able to reach the address."""
    return is_public(address) and not is_unix(address)


@functools.cache  # Once per address, however often an actor reconnects.
def warn_of_bare_token(address: str) -> None:
    """Logs that a token is sent there without encryption."""
    if address.startswith("unix-abstract:"):
        logging.warning(
            "The token for %s is not protected: any user of this machine can listen at an abstract "
            "socket when the server does not, and would receive the token. Use unix:/path.",
            address,
        )
    else:
        logging.warning(
            "The token for %s is sent without encryption and can be intercepted. Turn on TLS: "
            "tls_certificate and tls_key for the server, tls_ca for its clients.",
            address,
        )
