"""The client for Go: its own tests, `seed-rl conformance`, and that its CartPole is learned.

Needs Debian's packages golang-go and golang-google-grpc-dev.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from tests.helpers.clients import check_conformance, check_faults, check_learning

pytestmark = pytest.mark.nightly

_PACKAGES = pathlib.Path("/usr/share/gocode")


@pytest.fixture(scope="module")
def go(repository: Any, tmp_path_factory: Any) -> pathlib.Path:
    """A folder with the client as the package `seedrl`, in which `_go` works."""
    if not shutil.which("go"):
        pytest.skip("go is not installed (apt-get install golang-go)")
    if not (_PACKAGES / "src/google.golang.org/grpc").is_dir():
        pytest.skip("gRPC for Go is not installed (apt-get install golang-google-grpc-dev)")
    folder: pathlib.Path = tmp_path_factory.mktemp("clients")
    (folder / "src").mkdir()
    (folder / "src" / "seedrl").symlink_to(repository / "clients" / "go")
    return folder


def _go(folder: pathlib.Path, *arguments: Any) -> None:
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{folder}:{_PACKAGES}"}
    command = ["go", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cartpole(go: pathlib.Path) -> pathlib.Path:
    """The example, built."""
    _go(go, "build", "-o", go / "cartpole", "seedrl/examples/cartpole")
    return go / "cartpole"


def test_its_format(go: pathlib.Path) -> None:
    files = [*(go / "src/seedrl").rglob("*.go")]
    done = subprocess.run(["gofmt", "-l", *files], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_its_own_tests(go: pathlib.Path) -> None:
    _go(go, "vet", "seedrl", "seedrl/examples/cartpole")
    _go(go, "test", "seedrl")


def test_it_passes_conformance(cartpole: pathlib.Path, tmp_path: Any, socket_address: str) -> None:
    check_conformance(cartpole, folder=tmp_path, socket=socket_address)


def test_it_passes_conformance_through_the_proxy(
    cartpole: pathlib.Path, tmp_path: Any, socket_address: str, free_port: int
) -> None:
    check_conformance(cartpole, folder=tmp_path, socket=socket_address, proxy_port=free_port)


def test_its_cartpole_is_learned_through_the_proxy(
    cartpole: pathlib.Path, tmp_path: Any, socket_address: str, free_port: int
) -> None:
    check_learning(cartpole, folder=tmp_path, socket=socket_address, proxy_port=free_port)


def test_training_survives_the_death_of_anybody(
    cartpole: pathlib.Path, tmp_path: Any, free_port: int
) -> None:
    """Guards against `kill -9` of a client and of the learner, and against a cut network."""
    check_faults(cartpole, folder=tmp_path, port=free_port)
