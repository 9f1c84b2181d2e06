"""Clients of a server behind the shipped proxy: only those with a certificate get in."""

from __future__ import annotations

import contextlib
import pathlib
import stat
from collections.abc import Iterator

import grpc
import numpy as np
import pytest

from seed_rl.common.errors import UserError
from seed_rl.grpc import NumpyClient, ops
from seed_rl.grpc.channel_options import ClientOptions, ServerOptions
from seed_rl.grpc.errors import CallError, ConnectionLost
from seed_rl.launch.proxy import Proxy
from tests.helpers.op_helpers import Background, double, serving, values
from tests.helpers.proxies import proxied
from tests.helpers.secrets import Secrets, make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    return make_secrets(tmp_path_factory.mktemp("run") / "secrets", "localhost", "127.0.0.1")


@pytest.fixture
def port(socket_address: str, secrets: Secrets) -> Iterator[int]:
    """Of a proxy without a server, until one is started."""
    with proxied(socket_address, secrets) as port:
        yield port


def why_lost(port: int, **options: str) -> str:
    """Why a client cannot connect, unless the proxy of a busy machine answers too late."""
    with pytest.raises(ConnectionLost) as lost:
        NumpyClient(f"localhost:{port}", ClientOptions(connect_timeout_s=0.5, **options))
    return str(lost.value)


def test_both_clients(port, socket_address, secrets):
    """Guards certificates, streams in both directions, and large messages."""
    options = ClientOptions(**secrets.actor)
    with serving(socket_address, double):
        with NumpyClient(f"127.0.0.1:{port}", options) as client:
            assert client.double(np.arange(1024, dtype=np.int32)).tolist()[-1] == 2046
            assert client.stats()["functions"]["double"]["calls"] == 1
        assert values(ops.Client(f"localhost:{port}", options).double(1)) == 2
    # It waits for a server that comes.
    late = Background(ops.Client, f"localhost:{port}", options)
    with serving(socket_address, double):
        assert values(late.result().double(1)) == 2


def test_cleaners_of_temporary_files_spare_its_sockets(port, secrets):
    """Otherwise they take them for dead, and no client gets in any more."""
    for name in ("greeting", "requests"):
        assert (secrets.folder / name).stat().st_mode & stat.S_ISVTX


def test_strangers_end_in_the_handshake(port, socket_address, secrets, tmp_path):
    """With the fix in the message; nothing reaches the server."""
    theirs = make_secrets(tmp_path / "theirs", "localhost").actor
    with serving(socket_address, double) as server:
        for given, said in [
            ({"tls_ca": secrets.authority}, "give this client tls_cert and tls_key"),
            ({**theirs, "tls_ca": secrets.authority}, "refuses tls_cert="),
            ({**secrets.actor, "tls_key": theirs["tls_key"]}, "cannot be used"),
        ]:
            wait_until(lambda given=given, said=said: said in why_lost(port, **given))
        assert server.stats()["connections"] == 0


def test_members_reach_the_methods_of_the_server_only(port, socket_address, secrets):
    """And wait for a missing server, or fail immediately."""
    files = secrets.actor
    read = {name: pathlib.Path(path).read_bytes() for name, path in files.items()}
    wait_until(lambda: "the proxy there has no server behind it" in why_lost(port, **files))
    credentials = grpc.ssl_channel_credentials(read["tls_ca"], read["tls_key"], read["tls_cert"])
    with (
        grpc.secure_channel(f"localhost:{port}", credentials) as channel,
        contextlib.ExitStack() as s,
    ):
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.RpcError) as caught:
            check(b"", timeout=PATIENCE_S)
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        s.enter_context(serving(socket_address, double))
        assert check(b"", timeout=PATIENCE_S) == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/other.Service/Method")(b"", timeout=PATIENCE_S)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED
        assert "404" in caught.value.details()  # Of the proxy, not of the server.


def test_a_stream_ends_with_its_server_and_a_token_still_counts(port, socket_address, secrets):
    """Guards actors, which must notice immediately that the learner is gone, and tokens."""
    options = ClientOptions(**secrets.actor)
    with serving(socket_address, double, options=ServerOptions(token="sesame")) as server:
        with pytest.raises(CallError, match="requires a token"):
            NumpyClient(f"localhost:{port}", options)
        client = NumpyClient(f"localhost:{port}", ClientOptions(token="sesame", **secrets.actor))
        assert client.double(1) == 2
        server.shutdown()
        with pytest.raises(ConnectionLost):
            client.double(1)
        client.close()


def test_a_directory_too_long_for_sockets_is_refused(secrets, tmp_path):
    """HAProxy would exit at start-up, and actors would wait forever."""
    proxy = Proxy("127.0.0.1:1", tmp_path / "learner", secrets.folder, tmp_path / ("x" * 90))
    with pytest.raises(UserError, match="TMPDIR"):
        proxy.command()
