"""A server listens at all addresses of a name, or at none; files of Unix sockets."""

from __future__ import annotations

import pathlib

import pytest

from tests.helpers import compile_cpp, run

TRANSPORT = "seed_rl/grpc/native/transport"


@pytest.mark.slow  # It compiles.
def test_ports_and_socket_files(tmp_path: pathlib.Path, socket_address: str) -> None:
    """Guards names with several addresses, some of them in use or of another machine, and the
    socket file of a living server from one that is short of descriptors, or starts when it does.
    """
    program = compile_cpp(
        tmp_path / "addresses",
        "tests/grpc/native/addresses.cc",
        f"{TRANSPORT}/addresses.cc",
        f"{TRANSPORT}/listening_sockets.cc",
        flags=["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    )
    run(program, socket_address, code=0)
