"""Keeps the ratio of samples to inserts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class ReplayClosed(Exception):  # noqa: N818 - not an error but a normal end.
    """The replay was closed, before or during the call."""


class RateLimiter:
    """Keeps the number of unrolls sampled per unroll inserted at `ratio`.

    The *surplus* is `ratio` times the unrolls inserted minus the unrolls sampled; it starts at 0
    when the replay reaches `min_size`. An insert waits while the surplus exceeds `slack`; a sample
    waits while it would leave a surplus below -`slack`. So at any time

        -slack <= surplus <= slack + ratio * (unrolls inserted concurrently)

    and over a run samples / inserts differs from `ratio` by at most that bound divided by the
    number of inserts. At every surplus at least one side may proceed, so there is no deadlock. A
    sample larger than `slack` raises `slack` to its own size.

    Thread-safe.

    Args:
      ratio: unrolls sampled per unroll inserted; 0: samples wait for `min_size` only.
      min_size: unrolls to insert before the first sample.
      slack: deviation allowed, in sampled unrolls.
    """

    def __init__(self, ratio: float, min_size: int, slack: float):
        if ratio < 0 or min_size < 1 or slack <= 0:
            raise ValueError(f"Invalid: ratio {ratio}, min_size {min_size}, slack {slack}.")
        self._ratio = float(ratio)
        self._min_size = min_size
        self._slack = float(slack)
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._closed = False
        self._warm_up = min_size  # Unrolls still to insert before the first sample.
        self._inserted = 0
        self._sampled = 0
        self._counted_inserts = 0  # Inserts after the warm-up.
        self._surplus = 0.0
        self._wait_s = {"insert": 0.0, "sample": 0.0}

    def await_insert(self) -> None:
        """Waits until unrolls may be inserted. Call `count_insert` after inserting them.

        Raises:
          ReplayClosed: the limiter is closed.
        """
        with self._changed:
            self._wait(self._may_insert, "insert")

    def count_insert(self, num_unrolls: int) -> None:
        """Counts unrolls that were inserted and can be sampled from now on."""
        with self._changed:
            warming_up = min(num_unrolls, self._warm_up)
            self._warm_up -= warming_up
            self._inserted += num_unrolls
            self._counted_inserts += num_unrolls - warming_up
            self._surplus += self._ratio * (num_unrolls - warming_up)
            self._changed.notify_all()

    def sample(self, num_unrolls: int) -> None:
        """Waits until `num_unrolls` may be sampled, and counts them.

        Raises:
          ReplayClosed: the limiter is closed.
        """
        with self._changed:
            if num_unrolls > self._slack:
                self._slack = float(num_unrolls)
                self._changed.notify_all()  # An insert may proceed now.
            self._wait(lambda: self._may_sample(num_unrolls), "sample")
            self._sampled += num_unrolls
            if self._ratio:
                self._surplus -= num_unrolls
            self._changed.notify_all()

    def close(self) -> None:
        """Ends all current and future waits with `ReplayClosed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _may_insert(self) -> bool:
        return self._warm_up > 0 or self._surplus <= self._slack

    def _may_sample(self, num_unrolls: int) -> bool:
        if self._warm_up > 0:
            return False
        return self._ratio == 0 or self._surplus - num_unrolls >= -self._slack

    def _wait(self, may: Callable[[], bool], what: str) -> None:
        start = time.monotonic()
        self._changed.wait_for(lambda: self._closed or may())
        self._wait_s[what] += time.monotonic() - start
        if self._closed:
            raise ReplayClosed("The replay is closed.")

    @property
    def warm(self) -> bool:
        """Whether enough was inserted for the first sample."""
        with self._changed:
            return self._warm_up == 0

    @property
    def stats(self) -> dict[str, Any]:
        """Counts, the ratio achieved, the surplus, and the seconds each side has waited."""
        with self._changed:
            achieved = self._sampled / self._counted_inserts if self._counted_inserts else 0.0
            return {
                "inserted": self._inserted,
                "sampled": self._sampled,
                "ratio": achieved,
                "surplus": self._surplus,
                "insert_wait_s": self._wait_s["insert"],
                "sample_wait_s": self._wait_s["sample"],
            }

    def state(self) -> dict[str, Any]:
        """The state to save in a checkpoint, for `restore`."""
        with self._changed:
            return {
                "inserted": self._inserted,
                "sampled": self._sampled,
                "counted_inserts": self._counted_inserts,
                "surplus": self._surplus,
            }

    def restore(self, state: dict[str, Any], size: int) -> None:
        """Continues from a saved state.

        If the options have changed since, the counts stay and the surplus is clipped to the new
        bounds.

        Args:
          state: returned by `state`.
          size: unrolls in the replay.
        """
        counts = [int(state[name]) for name in ("inserted", "sampled", "counted_inserts")]
        surplus = float(state["surplus"])
        with self._changed:
            self._inserted, self._sampled, self._counted_inserts = counts
            self._surplus = min(max(surplus, -self._slack), self._slack)
            self._warm_up = max(0, self._min_size - size)
            self._changed.notify_all()
