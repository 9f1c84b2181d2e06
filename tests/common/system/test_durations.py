"""Human-readable durations."""

from __future__ import annotations

import pytest

from seed_rl.common.system import durations


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0:00:00"),
        (3723.4, "1:02:03"),
        (86_399.4, "23:59:59"),
        (86_399.6, "1 d 0 h"),
        (2 * 86_400 + 10 * 3600 + 30 * 60 + 7, "2 d 10 h"),
        (100 * 86_400, "100 d 0 h"),
        (100 * 86_400 + 1, "> 100 d"),
        (100 * 365 * 86_400, "> 100 d"),
    ],
)
def test_describe(seconds: float, text: str) -> None:
    """Guards ETAs of long runs from meaningless seconds."""
    assert durations.describe(seconds) == text
