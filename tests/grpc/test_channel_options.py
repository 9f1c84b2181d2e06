"""Options of servers and clients: tokens, and who can read them on their way."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from seed_rl.common.errors import UserError
from seed_rl.grpc import addresses, numpy_client
from seed_rl.grpc.channel_options import ClientOptions, ServerOptions, warn_of_bare_token
from seed_rl.grpc.errors import ConnectionLost


@pytest.mark.parametrize("token", ["", "two\nlines"])
@pytest.mark.parametrize("options", [ServerOptions, ClientOptions])
def test_a_token_that_cannot_be_sent_is_refused_at_once(
    options: type[ServerOptions] | type[ClientOptions], token: str
) -> None:
    """Guards every server and client, as all take these options."""
    with pytest.raises(UserError, match="The token "):
        options(token=token)


@pytest.mark.parametrize("options", [ServerOptions, ClientOptions])
def test_the_token_is_not_shown(options: type[ServerOptions] | type[ClientOptions]) -> None:
    """Guards logs and tracebacks, where options are printed."""
    shown = options(token="s3cret")
    assert shown.token == "s3cret"
    assert "s3cret" not in f"{shown} {shown!r}"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("unix:/tmp/socket", False),
        ("unix:relative", False),
        ("unix-abstract:name", True),
        ("localhost:8686", False),
        ("127.0.0.1:8686", False),
        ("127.3.2.1:8686", False),
        ("[::1]:8686", False),
        ("dns:///localhost:80", False),
        ("[::]:8686", True),
        ("0.0.0.0:8686", True),
        ("learner:8686", True),
        ("unixbox:8686", True),
        ("10.0.0.1:8686", True),
        ("localhost.example.org:8686", True),
        (":8686", True),
        ("ipv4:127.0.0.1:8686", True),
    ],
)
def test_who_can_reach_an_address(address: str, public: bool) -> None:
    """Abstract sockets count as public: they have no file whose permissions protect them. So does
    an unfamiliar way to write a loopback address.
    """
    assert addresses.is_public(address) == public


@pytest.fixture
def fresh() -> Iterator[None]:
    """As in a new process, which has not warned yet."""
    addresses.warn_of_bare_token.cache_clear()
    yield
    addresses.warn_of_bare_token.cache_clear()


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    ("options", "address", "warned"),
    [
        (ServerOptions(token="s3cret"), "0.0.0.0:1", "can be intercepted"),
        (ClientOptions(token="s3cret"), "learner:1", "can be intercepted"),
        (ServerOptions(token="s3cret"), "unix-abstract:a", "any user of this machine"),
        (ClientOptions(token="s3cret", tls_ca="ca"), "unix-abstract:a", "any user of this machine"),
        (ServerOptions(token="s3cret", tls_certificate="c", tls_key="k"), "0.0.0.0:1", ""),
        (ClientOptions(token="s3cret", tls_ca="ca"), "learner:1", ""),
        (ServerOptions(token="s3cret"), "localhost:1", ""),
        (ClientOptions(token="s3cret"), "unix:/tmp/x", ""),
        (ServerOptions(), "0.0.0.0:1", ""),
        (ClientOptions(), "learner:1", ""),
    ],
)
def test_a_warning_if_the_token_can_be_read(
    caplog: pytest.LogCaptureFixture,
    options: ServerOptions | ClientOptions,
    address: str,
    warned: str,
) -> None:
    """One per address, however often one connects, and without the token."""
    for _ in range(2):
        warn_of_bare_token(options, address)
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == bool(warned)
    assert all(warned in text and address in text and "s3cret" not in text for text in texts)


@pytest.mark.usefixtures("fresh")
def test_the_numpy_client_warns(caplog: pytest.LogCaptureFixture) -> None:
    """Before it sends the token: here no server would receive it."""
    options = ClientOptions(token="s3cret", connect_timeout_s=0.1)
    with pytest.raises(ConnectionLost):
        numpy_client.Client("unix-abstract:seed_rl_nobody", options)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and "unix-abstract:" in record.getMessage()
