"""Watches for training that stands still because no gradient is finite."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from seed_rl.common.errors import UserError

WARN_AFTER = 10
MOST = 100
_MOST_HELD = 100


class SkippedSteps:
    """Warns of training steps that are skipped one after the other, and ends the run in the end.

    `add` only keeps the tensors, so that it waits for the accelerator at most once in a hundred
    steps. `check` looks at them, as often as the run is reported.

    Attributes:
      in_a_row: steps skipped up to the last one that `check` has seen.
    """

    def __init__(self, cause: Callable[[], str | None] = lambda: None):
        """Begins to watch.

        Args:
          cause: returns what is known to be wrong, for the error's message.
        """
        self._cause = cause
        self.in_a_row = 0
        self._held: list[Any] = []

    def add(self, skipped: Any) -> None:
        """Takes in one training step: 1 if it was skipped, 0 if not; a scalar tensor or number.

        Raises:
          UserError: see `check`.
        """
        self._held.append(skipped)
        if len(self._held) >= _MOST_HELD:
            self.check()

    def check(self) -> int:
        """Looks at the steps since the last time.

        Returns:
          `in_a_row`.

        Raises:
          UserError: so many were skipped that nobody should wait any longer.
        """
        held, self._held = self._held, []
        for skipped in held:
            self.in_a_row = self.in_a_row + 1 if float(skipped) else 0
            if self.in_a_row == WARN_AFTER:
                logging.warning(
                    "The last %d training steps were skipped: their gradients are not finite (NaN "
                    "or infinity). After %d in a row the run will end.",
                    WARN_AFTER,
                    MOST,
                )
            if self.in_a_row == MOST:
                raise UserError(_message(self._cause()))
        return self.in_a_row


def _message(cause: str | None) -> str:
    known = f" Known: {cause}." if cause else ""
    return (
        f"{MOST} training steps in a row were skipped, because their gradients are not finite (NaN "
        f"or infinity); the run ends, since it learns nothing.{known} Likely causes: environments "
        "that report NaN or infinity as observation or reward (mend or wrap them); a network or "
        "loss of your own that divides by 0 or takes the logarithm of 0 (mend it); diverged "
        "training (lower --learning_rate or --clip_norm). No checkpoint was saved since steps are "
        "being skipped: the same command continues from the last good one, if there is one."
    )
