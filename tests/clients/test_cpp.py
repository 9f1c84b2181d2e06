"""The client in C++: its build, `seed-rl conformance`, and that its CartPole is learned.

Needs cmake, and Debian's packages libgrpc++-dev and nlohmann-json3-dev.
"""

from __future__ import annotations

import pathlib
import shutil
import subprocess
from typing import Any

import pytest

from tests.helpers.clients import check_conformance, check_faults, check_learning


@pytest.fixture(scope="module")
def cartpole(repository: Any, tmp_path_factory: Any) -> pathlib.Path:
    """The example, built without warnings."""
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    for package in ("grpc++", "nlohmann_json"):
        if subprocess.run(["pkg-config", "--exists", package]).returncode:
            pytest.skip(f"{package} is not installed")
    folder: pathlib.Path = tmp_path_factory.mktemp("cpp")
    source = repository / "clients" / "cpp"
    flags = "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
    for command in (["cmake", "-S", source, "-B", folder, flags], ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder / "cartpole"


@pytest.mark.slow
def test_it_needs_neither_tensorflow_nor_python(cartpole: pathlib.Path) -> None:
    linked = subprocess.run(["ldd", cartpole], capture_output=True, text=True, check=True).stdout
    assert "grpc" in linked
    assert "tensorflow" not in linked and "python" not in linked


@pytest.mark.slow
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
    done = subprocess.run([cartpole, *flags], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and message in done.stderr


@pytest.mark.slow
def test_it_passes_conformance(cartpole: pathlib.Path, tmp_path: Any, socket_address: str) -> None:
    check_conformance(cartpole, folder=tmp_path, socket=socket_address)


@pytest.mark.nightly
def test_it_passes_conformance_through_the_proxy(
    cartpole: pathlib.Path, tmp_path: Any, socket_address: str, free_port: int
) -> None:
    check_conformance(cartpole, folder=tmp_path, socket=socket_address, proxy_port=free_port)


@pytest.mark.nightly
def test_its_cartpole_is_learned_through_the_proxy(
    cartpole: pathlib.Path, tmp_path: Any, socket_address: str, free_port: int
) -> None:
    check_learning(cartpole, folder=tmp_path, socket=socket_address, proxy_port=free_port)


@pytest.mark.nightly
def test_training_survives_the_death_of_anybody(
    cartpole: pathlib.Path, tmp_path: Any, free_port: int
) -> None:
    """Guards against `kill -9` of a client and of the learner, and against a cut network."""
    check_faults(cartpole, folder=tmp_path, port=free_port)
