"""A server listens at all addresses of a name, or at none; files of Unix sockets."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tests.helpers import run


def test_ports_and_socket_files(
    tmp_path: pathlib.Path, repository: pathlib.Path, socket_address: str
) -> None:
    """Guards names with several addresses, some of them in use or of another machine, and the
    socket file of a living server from one that is short of descriptors, or starts when it does.
    """
    program = tmp_path / "addresses"
    transport = repository / "seed_rl" / "grpc" / "native" / "transport"
    sources = [
        repository / "tests" / "grpc" / "native" / "addresses.cc",
        transport / "addresses.cc",
        transport / "listening_sockets.cc",
    ]
    compiler = [
        os.environ.get("CXX", "g++"),
        "-std=c++17",
        "-O1",
        "-g",
        "-Wall",
        "-Werror",
        "-pthread",
    ]
    sanitizer = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    build = [*compiler, *sanitizer, f"-I{repository}", *map(str, sources), "-o", str(program)]
    subprocess.run(build, check=True)
    run(program, socket_address, code=0)
