"""Durations as people read them."""

from __future__ import annotations

import datetime

_DAY_S = 86_400
_LONGEST_DAYS = 100


def describe(seconds: float) -> str:
    """A duration, only as precise as estimates of that length are.

    Returns:
      "1:02:03" (hours, minutes, seconds) for less than a day; then "2 d 10 h"; "> 100 d" for more
      than that.
    """
    total = round(seconds)
    if total < _DAY_S:
        return str(datetime.timedelta(seconds=total))
    if total > _LONGEST_DAYS * _DAY_S:
        return f"> {_LONGEST_DAYS} d"
    days, rest = divmod(total, _DAY_S)
    return f"{days} d {rest // 3600} h"
