"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import os
import pathlib
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest

from seed_rl.launch import ports
from tests.helpers import REPOSITORY, system_helpers
from tests.helpers.forks import Forks

# Before anything imports TensorFlow; child processes inherit it.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # Several processes, one GPU.
# A shell in a script starts background jobs deaf to Ctrl-C, as their child processes would be.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """Keeps what earlier modules have left out of the garbage collector's way.

    TensorFlow's graphs stay for the life of a process, so that after a thousand tests each full
    collection, in the middle of some test, takes half a minute.
    """
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """As `tmp_path`, but short enough for sockets on every system."""
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def socket_address(short_path: pathlib.Path) -> str:
    """A "unix:/path" where nobody listens yet."""
    return f"unix:{short_path}/socket"


@pytest.fixture(scope="module")
def shared_address() -> Iterator[str]:
    """As `socket_address`, for all tests of a module."""
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        yield f"unix:{folder}/socket"


@pytest.fixture
def free_port() -> int:
    """A TCP port on which nobody listens, and that the system does not give to connections."""
    return ports.free_port()


@pytest.fixture(scope="session")
def repository() -> pathlib.Path:
    """The root of the working tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def python_without_packages() -> str:
    """This machine's own Python, as after a setup that was broken off."""
    python = "/usr/bin/python3"
    if not os.path.exists(python):
        pytest.skip(f"there is no {python}")
    found = subprocess.run([python, "-c", "import absl"], capture_output=True, check=False)
    if found.returncode == 0:
        pytest.skip("this machine's own Python has the packages")
    return python


@pytest.fixture(scope="session")
def build_folder(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], contextlib.AbstractContextManager[pathlib.Path]]:
    """Opens a folder, by its name, of all processes that run these tests, so that one builds.

    The others wait until it has left the context, and find what it has built.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent

    @contextlib.contextmanager
    def opened(name: str) -> Iterator[pathlib.Path]:
        folder = root / name
        with open(f"{folder}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(exist_ok=True)
            yield folder

    return opened


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """Runs Python programs in forks of a process that has imported TensorFlow."""
    with Forks() as forks:
        yield forks


@pytest.fixture
def train_to_end(
    forks: Forks, tmp_path: pathlib.Path, socket_address: str
) -> Callable[..., pathlib.Path]:
    """`system_helpers.train_to_end` from the module on, in a folder of the test."""
    return functools.partial(system_helpers.train_to_end, forks, tmp_path, socket_address)
