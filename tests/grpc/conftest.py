"""What the tests of the NumPy client run with."""

import pytest

from seed_rl.grpc import message_stream


@pytest.fixture(params=["direct", "public"])
def stream_kind(request, monkeypatch):
    """Runs a test with either way to use grpcio."""
    used = []
    real = {"direct": message_stream._DirectStream, "public": message_stream._PublicStream}

    def record(kind):
        def make(*args):
            used.append(kind)
            return real[kind](*args)

        return make

    def unavailable(*args):
        raise AttributeError("this grpcio is built differently")

    direct = record("direct") if request.param == "direct" else unavailable
    monkeypatch.setattr(message_stream, "_DirectStream", direct)
    monkeypatch.setattr(message_stream, "_PublicStream", record("public"))
    yield request.param
    assert set(used) <= {request.param}  # Also guards that grpcio still is as the direct one needs.


@pytest.fixture
def address(socket_address):
    return socket_address
