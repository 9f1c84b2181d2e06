"""A server listens at all addresses of a name, or at none."""

from __future__ import annotations

import os
import pathlib
import subprocess

from tests.helpers import run


def test_port_claims(tmp_path: pathlib.Path, repository: pathlib.Path) -> None:
    """Guards names with several addresses, some of them in use or of another machine."""
    program = tmp_path / "addresses"
    sources = [
        repository / "tests" / "grpc" / "native" / "addresses.cc",
        repository / "seed_rl" / "grpc" / "native" / "transport" / "addresses.cc",
    ]
    compiler = [os.environ.get("CXX", "g++"), "-std=c++17", "-O1", "-g", "-Wall", "-Werror"]
    sanitizer = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    build = [*compiler, *sanitizer, f"-I{repository}", *map(str, sources), "-o", str(program)]
    subprocess.run(build, check=True)
    run(program, code=0)
