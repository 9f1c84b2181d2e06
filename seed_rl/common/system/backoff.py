"""Exponential backoff."""

from __future__ import annotations

_MOST_DOUBLINGS = 60  # Prevents overflow of the power of two.


def backoff_s(failures: int, first_s: float, longest_s: float) -> float:
    """Seconds to wait before the next attempt.

    Args:
      failures: number of failures in a row, at least 1.
      first_s: the pause after the first failure; doubles with each further one.
      longest_s: upper limit of the pause.
    """
    return min(first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest_s)
