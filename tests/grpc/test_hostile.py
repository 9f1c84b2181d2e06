"""The attacks of `python -m benchmarks.hostile`, in their short form.

Each runs against a server in its own process: honest clients wait at most 500 ms and get no error,
new ones get in, and the server's memory stays within 256 MiB of where it was. (Time in which the
honest client's process did not run does not count as waiting.)
"""

import os

import pytest

from benchmarks.hostile.attacks import ATTACKS
from benchmarks.hostile.measuring import Range

SECONDS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc"),
]


@pytest.fixture(scope="module")
def attack_range():
    with Range() as attack_range:
        yield attack_range


@pytest.mark.parametrize("name", ATTACKS)
def test_honest_clients_do_not_notice(attack_range, name):
    result = attack_range.run(ATTACKS[name], SECONDS)
    assert result.counts, "nothing was attacked"
    assert not result.problems, result
