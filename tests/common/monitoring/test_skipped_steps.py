"""Stalled training is reported and ended."""

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.monitoring.skipped_steps import END_AFTER, WARN_AFTER, SkippedSteps


def watch(steps, caplog):
    """(skipped in a row at the end, warnings)."""
    skipped = SkippedSteps()
    for step in steps:
        skipped.add(tf.constant(float(step)))
    return skipped.check(), len(caplog.records)


def test_a_row_of_skipped_steps_is_warned_of_once(caplog):
    assert watch([1] * (WARN_AFTER - 1), caplog) == (WARN_AFTER - 1, 0)
    assert watch([1] * (END_AFTER - 1), caplog) == (END_AFTER - 1, 1)
    assert "The last 10 training steps were skipped" in caplog.text


def test_skipped_steps_between_others_are_tolerated(caplog):
    """Guards a run with a rare NaN: nine bad batches of ten neither warn nor end it."""
    assert watch(([1] * (WARN_AFTER - 1) + [0]) * 50, caplog) == (0, 0)


def test_a_second_row_is_warned_of_again(caplog):
    assert watch([1] * WARN_AFTER + [0] + [1] * WARN_AFTER, caplog) == (WARN_AFTER, 2)


@pytest.mark.parametrize("good", [0, 7, 1234])
def test_training_that_stands_still_ends(good):
    """Guards the end, whenever `check` is called, and what its message offers."""
    for often in (False, True):
        skipped = SkippedSteps(lambda: "mice")
        for _ in range(good):
            skipped.add(0.0)
        with pytest.raises(UserError, match="100 training steps .* Known cause: mice.* Likely"):
            for _ in range(2 * END_AFTER):
                skipped.add(1.0)
                if often:
                    skipped.check()


def test_values_are_read_when_asked_for_only():
    """Guards an accelerator from waiting for the host in each step."""

    class Counted:
        reads = 0

        def __float__(self):
            Counted.reads += 1
            return float(np.float32(0))

    skipped = SkippedSteps()
    for _ in range(50):
        skipped.add(Counted())
    assert Counted.reads == 0
    skipped.check()
    assert Counted.reads == 50
    skipped.check()
    assert Counted.reads == 50


def test_a_partly_skipped_step_is_a_step(caplog):
    """Guards algorithms of several gradient steps: 15 of 16 that train are no reason to end."""
    assert watch([1 / 16] * (END_AFTER + 1), caplog) == (0, 0)


def test_the_error_names_the_metrics_that_are_not_finite():
    """Those of the step that ended the run, not of an earlier one."""
    skipped = SkippedSteps()
    with pytest.raises(UserError, match="last of them: loss=nan, losses/value=inf. Likely"):
        for step in range(END_AFTER):
            last = step == END_AFTER - 1
            loss = tf.constant(np.nan)
            skipped.add(
                1.0, {"loss": loss, "losses/value": np.inf if last else 1.0, "kl": tf.constant(2.0)}
            )
