"""Fixtures of the NumPy client's tests."""

import pytest


@pytest.fixture
def address(socket_address):
    return socket_address
