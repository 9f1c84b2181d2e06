"""Fixtures of the NumPy client's tests."""

import pytest

from seed_rl.grpc import native_stream


@pytest.fixture(params=["native", "grpcio"])
def stream_kind(request, monkeypatch):
    """Runs a test with the native stream and with the one for machines without the library."""
    assert native_stream.available()
    if request.param == "grpcio":
        monkeypatch.setattr(native_stream, "available", lambda: False)
    return request.param


@pytest.fixture
def address(socket_address):
    return socket_address
