"""The attacks of `python -m benchmarks.hostile`, in a short form: everyone honest is served.

How long they wait, and the memory, is what the benchmark measures.
"""

import os

import pytest

from benchmarks.hostile.attacks import ATTACKS
from benchmarks.hostile.measuring import Range

SECONDS = 1

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks into /proc"),
]


@pytest.mark.nightly
def test_honest_clients_are_served():
    """Under attack by unauthenticated and authenticated clients, in bursts."""
    with Range() as attack_range:
        for name in ("silent", "held_hellos", "reset_ambush"):
            result = attack_range.run(ATTACKS[name], SECONDS)
            assert result.counts, "nothing was attacked"
            # Times depend on the machine.
            assert not [text for text in result.problems if not text.endswith(" ms")], result
