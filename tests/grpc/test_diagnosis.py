"""A client's messages about a server that it cannot reach or must not trust."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from seed_rl.grpc import diagnosis
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import ConnectionLost
from seed_rl.grpc.numpy_client import Client
from tests.helpers.op_helpers import double, serving
from tests.helpers.secrets import Secrets, dated_certificate, make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    """For a learner that is only called "localhost"."""
    return make_secrets(tmp_path_factory.mktemp("run") / "secrets", "localhost")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the servers of the tests answer late."""
    monkeypatch.setattr(diagnosis, "_LONGEST_S", PATIENCE_S)


@contextlib.contextmanager
def listening(handle: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port whose connections are handled one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        handle(connection)

        threading.Thread(target=accept, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def encrypting(secrets: Secrets) -> Iterator[int]:
    """A port with the learner's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(secrets.folder / "cert.pem", secrets.folder / "key.pem")
    with listening(lambda connection: context.wrap_socket(connection, True).close()) as port:
        yield port


def reason(address: str, tls_ca: str | None = None) -> str:
    return diagnosis.why_unreachable(address, ClientOptions(tls_ca=tls_ca))


def test_certificates(secrets: Secrets, tmp_path) -> None:
    """Each certificate error has its own fix; a good certificate reports nothing."""
    with encrypting(secrets) as port:
        assert reason(f"localhost:{port}", secrets.authority) == ""
        assert reason(f"dns:///localhost:{port}", secrets.authority) == ""
        assert "is not for 127.0.0.1: " in reason(f"127.0.0.1:{port}", secrets.authority)
        stranger = make_secrets(tmp_path / "other", "localhost").authority
        assert f"tls_ca={stranger} did not sign" in reason(f"localhost:{port}", stranger)
        assert "uses TLS: give this client tls_ca" in reason(f"localhost:{port}")
        (tmp_path / "text").write_text("no certificate")
        assert "text cannot be used" in reason(f"localhost:{port}", str(tmp_path / "text"))


@pytest.mark.parametrize(
    ("first", "last", "said"), [(-9, -2, "has expired"), (2, 9, "is not valid yet")]
)
def test_dates(secrets: Secrets, tmp_path, first: int, last: int, said: str) -> None:
    """An old certificate looks like a clock that is ahead: the message names both."""
    dated = dated_certificate(secrets, tmp_path / "dated", first, last)
    with encrypting(dated) as port:
        text = reason(f"localhost:{port}", dated.authority)
    assert f"the server's certificate {said} by this machine's clock (2" in text
    assert "set the clock" in text and "make a new certificate" in text


def test_a_server_without_encryption(secrets: Secrets) -> None:
    """A real one, because its answer to a TLS handshake is gRPC's."""
    with serving("localhost:0", double) as server:
        address = f"localhost:{server.ports[0]}"
        wait_until(lambda: "does not use TLS" in reason(address, secrets.authority))
        assert reason(address) == ""
        options = ClientOptions(tls_ca=secrets.authority, connect_timeout_s=0.3)

        def told() -> bool:  # The server of a busy machine may answer later.
            with pytest.raises(ConnectionLost) as lost:
                Client(address, options)
            return "within 0.3 s: the server there does not use TLS" in str(lost.value)

        wait_until(told)


def test_names_and_ports(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Distinguished, as they have different causes; the name server may not answer at all."""
    assert "127.0.0.1 refuses connections" in reason(f"127.0.0.1:{free_port}")
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    monkeypatch.setattr(socket, "getaddrinfo", mock.Mock(side_effect=unknown))
    assert "the name learner has no address yet: Name or" in reason("learner:1")
    hanging = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hanging.wait() and [])
    monkeypatch.setattr(diagnosis, "_LONGEST_S", 0.05)
    assert "the name server does not answer" in reason("learner:1")
    hanging.set()


def test_nothing_is_said_of_what_is_not_known(monkeypatch: pytest.MonkeyPatch, secrets) -> None:
    """A busy server must not be called one without encryption."""
    monkeypatch.setattr(diagnosis, "_LONGEST_S", 0.05)
    silent = threading.Event()
    with listening(lambda connection: silent.wait() and None) as port:
        for tls_ca in (None, secrets.authority):
            assert reason(f"127.0.0.1:{port}", tls_ca) == ""
        silent.set()
    with listening(lambda connection: None) as port:  # Closes at once.
        assert reason(f"127.0.0.1:{port}", secrets.authority) == ""
    for address in ("unix:/tmp/x", "unix-abstract:x", "x", "x:y", ":1"):
        assert reason(address) == ""
