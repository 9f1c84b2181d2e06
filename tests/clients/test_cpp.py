"""The client in C++: its build, `seed-rl conformance`, and that its CartPole is learned.

Needs cmake, and Debian's packages libgrpc++-dev and nlohmann-json3-dev.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from tests.helpers import run
from tests.helpers.clients import ClientTests, description
from tests.helpers.scripted_server import Scripted

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def cartpole(repository: Any, build_folder: Any) -> pathlib.Path:
    """The example, built without warnings."""
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    for package in ("grpc++", "nlohmann_json"):
        if subprocess.run(["pkg-config", "--exists", package]).returncode:
            pytest.skip(f"{package} is not installed")
    source = repository / "clients" / "cpp"
    # Debug compiles in half the time.
    flags = ["-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"]
    with build_folder("cpp") as folder:
        # A busy machine compiles for minutes.
        run("cmake", "-S", source, "-B", folder, *flags, code=0, timeout=900)
        run("cmake", "--build", folder, code=0, timeout=900)
    program: pathlib.Path = folder / "cartpole"
    return program


@pytest.fixture
def command(cartpole: pathlib.Path) -> list[str]:
    return [str(cartpole)]


class TestClient(ClientTests):
    pass


def test_it_needs_neither_tensorflow_nor_python(cartpole: pathlib.Path) -> None:
    linked = run("ldd", cartpole, code=0).stdout
    assert "grpc" in linked
    assert "tensorflow" not in linked and "python" not in linked


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tusk=1"], "error: The flags are --auth_token_file"),
        (["--task=x"], "error: --task=x must be a number"),
        (["--env_batch_size=0"], "error: --env_batch_size=0 must be a number, at least 1."),
        (["--tls_ca=/nowhere"], "error: --tls_ca=/nowhere cannot be read."),
        (["what"], "error: What is what? Flags begin with --."),
    ],
)
def test_mistakes(cartpole: pathlib.Path, flags: list[str], message: str) -> None:
    done = run(cartpole, *flags, code=2)
    assert message in done.stderr


def test_an_empty_structure(
    cartpole: pathlib.Path, repository: pathlib.Path, socket_address: str
) -> None:
    """A learner could crash the actor with it."""
    learner = description(repository)
    learner["functions"][0]["outputs"] = {}
    with Scripted(socket_address, lambda *_: [], json.dumps(learner)):
        done = run(cartpole, f"--server_address={socket_address}", code=2)
    assert "empty structure" in done.stderr
