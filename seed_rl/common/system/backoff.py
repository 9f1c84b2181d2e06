"""How long to wait before the next attempt at something that keeps failing."""

from __future__ import annotations

_MOST_DOUBLINGS = 60  # Above, powers of two would leave what a float holds.


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """The pause in seconds after so many failures in a row.

    Args:
      failures: at least 1.
      first_s: the pause after the first; doubled for each further one.
      longest_s: no pause is longer.
    """
    return min(first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest_s)
