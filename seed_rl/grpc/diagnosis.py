"""Why a server cannot be reached, with what to do about it.

gRPC only reports that the time is up. After a failed attempt, a plain socket and Python's `ssl`
repeat name lookup, connection and handshake, to find which of them failed.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import threading

from seed_rl.grpc import addresses
from seed_rl.grpc.channel_options import ClientOptions

_LONGEST_S = 1.0
"""Time limit for looking up the name, and for each step after that."""

# OpenSSL's X509_V_ERR_*.
_NOT_YET_VALID, _EXPIRED = 9, 10
_OTHER_HOST = (62, 64)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""Errors of different OpenSSL releases on a plain HTTP/2 answer."""


_ENCRYPTS = "the server there uses TLS: give this client tls_ca"


def why_unreachable(address: str, options: ClientOptions, name: str | None = None) -> str:
    """Tries to connect, for a few seconds at most.

    Args:
      address: "host:port"; other addresses are not diagnosed.
      options: of the client that could not connect.
      name: host that the server's certificate must be for; None: that of `address`.

    Returns:
      What failed and what to do, as the end of a sentence; "" if nothing was found.
    """
    host, _, port = address.rpartition("/")[2].rpartition(":")
    host = host.strip("[]")
    if addresses.is_unix(address) or not host or not port.isdecimal():
        return ""
    places = _look_up(host, int(port))
    if isinstance(places, str):
        return places
    reason = ""
    for family, place in places:
        try:
            with socket.socket(family) as connection:
                connection.settimeout(_LONGEST_S)
                connection.connect(place)
                return _greet(connection, name or host, options)
        except OSError as error:
            reason = _why_not_connected(place[0], error)
    return reason


def _look_up(host: str, port: int) -> list[tuple[int, tuple[str, int]]] | str:
    """The (family, address) of a name, or why there are none."""
    found: list[tuple[int, tuple[str, int]]] = []
    errors: list[str] = []

    def look_up() -> None:
        try:
            for family, *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append((family, place))  # type: ignore[arg-type]  # IPv6 has more fields.
        except OSError as error:
            errors.append(str(error.strerror or error))

    # A resolver without an answer cannot be interrupted.
    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(_LONGEST_S)
    if found:
        return found
    why = errors[0] if errors else "the name server does not answer"
    return (
        f"the name {host} has no address yet: {why}; if that persists, check the name, and this "
        "machine's DNS and /etc/hosts"
    )


def _why_not_connected(place: str, error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return f"{place} refuses connections at this port: the server is not running there (yet)"
    if isinstance(error, TimeoutError):
        return f"{place} does not answer: the machine is down, or a firewall is in between"
    return f"{place}: {error.strerror or error}"


def _greet(connection: socket.socket, host: str, options: ClientOptions) -> str:
    """Why encryption fails on an open connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if options.tls_ca:
        try:
            context.load_verify_locations(options.tls_ca)
        except (OSError, ssl.SSLError) as error:
            return f"tls_ca={options.tls_ca} cannot be used: {error}"
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.tls_cert:
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key)
        except (OSError, ssl.SSLError) as error:
            return f"tls_cert={options.tls_cert} with tls_key cannot be used: {error}"
    try:
        with context.wrap_socket(connection, server_hostname=host) as encrypted:
            if options.tls_ca:
                # With TLS 1.3, the server looks at the client's certificate after the handshake.
                with contextlib.suppress(TimeoutError):
                    encrypted.recv(1)
    except ssl.SSLCertVerificationError as error:
        return _why_not_trusted(host, error, options)
    except ssl.SSLError as error:
        if not options.tls_ca:
            return ""
        if error.reason in _NOT_TLS:
            return (
                "the server there does not use TLS: start it with tls_certificate and tls_key, or "
                "this client without tls_ca"
            )
        return _why_refused(error, options)
    except OSError:  # The server is busy, or has just ended.
        return ""
    return "" if options.tls_ca else _ENCRYPTS


def _why_refused(error: ssl.SSLError, options: ClientOptions) -> str:
    """What a server's alert says about the client's certificate, if anything."""
    alert = error.reason or ""
    if "CERTIFICATE_REQUIRED" in alert or ("ALERT" in alert and not options.tls_cert):
        return "the server there asks for a certificate: give this client tls_cert and tls_key"
    if "ALERT" in alert:
        reason = alert.rpartition("ALERT_")[2].lower().replace("_", " ")
        return (
            f"the server there refuses tls_cert={options.tls_cert} ({reason}): make a new one with "
            "the same authority as the server's"
        )
    return ""


def _why_not_trusted(host: str, error: ssl.SSLCertVerificationError, options: ClientOptions) -> str:
    code = error.verify_code
    if code in (_EXPIRED, _NOT_YET_VALID):
        state = "has expired" if code == _EXPIRED else "is not valid yet"
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            f"the server's certificate {state} by this machine's clock ({now:%Y-%m-%d %H:%M} UTC): "
            "set the clock if it is off; otherwise make a new certificate and restart the server"
        )
    if code in _OTHER_HOST:
        return (
            f"the server's certificate is not for {host}: connect to a name that is in it, or make "
            f"one for {host} and restart the server"
        )
    return (
        f"tls_ca={options.tls_ca} did not sign the server's certificate ({error.verify_message}): "
        "use the file that belongs to it, unless another server has taken its place"
    )
