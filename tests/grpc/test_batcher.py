"""What the batcher does beside network and TensorFlow: replies, isolation, failed allocations.

The tests are those of native/batcher.cc.
"""

import shlex

import pytest

from tests.helpers import compile_cpp, run

TESTS = {
    "borrowing": "A client that does not read its replies keeps its own rows, not whole batches.",
    "isolation": "One faulty call in a large batch costs few runs, and only faulty calls fail.",
    "memory_for_batches": "Without memory for its batch, a call fails, and no other.",
    "memory_for_strings": "Without memory for a call's strings, its batch fails.",
    "memory_for_runs": "A run without memory fails its calls and frees its executor.",
    "memory_for_replies": "Without memory for its reply, a call fails, and no other.",
}

TRANSPORT = "seed_rl/grpc/native/transport"
SOURCES = [
    f"{TRANSPORT}/{name}.cc" for name in ("batch", "batcher", "buffer_pool", "signature", "wire")
]

pytestmark = pytest.mark.slow  # It compiles.


@pytest.fixture(scope="module")
def program(build_folder):
    flags = run("pkg-config", "--cflags", "--libs", "grpc++", code=0).stdout
    with build_folder("batcher") as built:
        target = built / "batcher"
        if not target.exists():
            compile_cpp(target, *SOURCES, "tests/grpc/native/batcher.cc", flags=shlex.split(flags))
    return target


@pytest.mark.parametrize("name", TESTS)
def test_batcher(program, name):
    run(program, name, code=0)
