"""Pauses between attempts."""

from __future__ import annotations

import pytest

from seed_rl.common.system.backoff import backoff_s


@pytest.mark.parametrize(
    ("failures", "pause"), [(1, 0.5), (2, 1.0), (5, 8.0), (6, 10.0), (1_000_000, 10.0)]
)
def test_pauses_double_up_to_the_longest(failures: int, pause: float) -> None:
    """Guards what watches something that fails every half minute for days, too."""
    assert backoff_s(failures, 0.5, 10.0) == pause
