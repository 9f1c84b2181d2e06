"""Pauses between attempts."""

from __future__ import annotations

import pytest

from seed_rl.common.system.backoff import backoff_s


@pytest.mark.parametrize(("failures", "pause"), [(1, 0.5), (2, 1.0), (5, 8.0), (6, 10.0)])
def test_pauses_double_up_to_the_longest(failures: int, pause: float) -> None:
    assert backoff_s(failures, 0.5, 10.0) == pause


def test_failures_of_many_days() -> None:
    """Something that fails every half minute must not end what watches it."""
    assert backoff_s(1_000_000, 0.5, 30.0) == 30.0
