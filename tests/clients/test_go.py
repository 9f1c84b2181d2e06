"""The client for Go: its own tests, `seed-rl conformance`, and that its CartPole is learned.

Needs Debian's packages golang-go and golang-google-grpc-dev.
"""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest

from tests.helpers import run
from tests.helpers.clients import ClientTests

pytestmark = pytest.mark.nightly

_COMPILING_S = 900
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
    variables = {"GO111MODULE": "off", "GOPATH": f"{folder}:{_PACKAGES}"}
    run("go", *arguments, code=0, cwd=folder, variables=variables, timeout=_COMPILING_S)


@pytest.fixture(scope="module")
def command(go: pathlib.Path) -> list[str]:
    """Of the example, built."""
    _go(go, "build", "-o", go / "cartpole", "seedrl/examples/cartpole")
    return [str(go / "cartpole")]


class TestClient(ClientTests):
    pass


def test_its_format(go: pathlib.Path) -> None:
    files = [*(go / "src/seedrl").rglob("*.go")]
    done = run("gofmt", "-l", *files)
    assert (done.returncode, done.stdout) == (0, "")


def test_its_own_tests(go: pathlib.Path) -> None:
    _go(go, "vet", "seedrl", "seedrl/examples/cartpole")
    _go(go, "test", "seedrl")
