"""Detects training that has stalled because gradients are not finite."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

from seed_rl.common.errors import UserError

WARN_AFTER = 10
END_AFTER = 100
_MOST_HELD = 100


class SkippedSteps:
    """Warns when training steps are skipped in a row, and finally ends the run.

    `add` only stores the tensors, and waits for the accelerator at most every hundred steps.
    `check`, called with every report of the run, reads them.

    Attributes:
      in_a_row: number of skipped steps up to the last one that `check` has read.
    """

    def __init__(self, cause: Callable[[], str | None] = lambda: None):
        """Starts with no steps.

        Args:
          cause: returns the known cause for the error message, or None.
        """
        self._cause = cause
        self.in_a_row = 0
        self._held: list[tuple[Any, Mapping[str, Any]]] = []

    def add(self, skipped: Any, metrics: Mapping[str, Any] | None = None) -> None:
        """Adds one training step.

        Args:
          skipped: share of its gradient steps that were skipped, a scalar tensor or number; the
            training step counts as skipped if all were.
          metrics: scalars of the step by name; the error message shows those that are not finite.

        Raises:
          UserError: `END_AFTER` steps in a row were skipped.
        """
        self._held.append((skipped, metrics or {}))
        if len(self._held) >= _MOST_HELD:
            self.check()

    def check(self) -> int:
        """Reads the steps added since the last check.

        Returns:
          `in_a_row`.

        Raises:
          UserError: `END_AFTER` steps in a row were skipped.
        """
        held, self._held = self._held, []
        for skipped, metrics in held:
            self.in_a_row = self.in_a_row + 1 if float(skipped) >= 1.0 else 0
            if self.in_a_row == WARN_AFTER:
                logging.warning(
                    "The last %d training steps were skipped: their gradients are not finite (NaN "
                    "or infinity). After %d in a row the run will end.",
                    WARN_AFTER,
                    END_AFTER,
                )
            if self.in_a_row == END_AFTER:
                raise UserError(_message(self._cause(), metrics))
        return self.in_a_row


def _message(cause: str | None, metrics: Mapping[str, Any]) -> str:
    known = f" Known cause: {cause}." if cause else ""
    values = {name: float(value) for name, value in metrics.items()}
    bad = [f"{name}={value}" for name, value in values.items() if not math.isfinite(value)]
    shown = f" Not finite in the last of them: {', '.join(bad)}." if bad else ""
    return (
        f"{END_AFTER} training steps in a row were skipped because their gradients are not finite "
        f"(NaN or infinity); the run ends, as it cannot learn.{shown}{known} Likely causes: "
        "environments that return NaN or infinity as observation or reward (fix or wrap them); a "
        "custom network or loss that divides by 0 or takes the logarithm of 0 (fix it); diverged "
        "training (lower learning_rate or clip_norm). No checkpoint was saved since the first "
        "of these steps: the same command continues from the last good one, if any."
    )
