"""Scheduling policy of processes that share a machine with a learner."""

from __future__ import annotations

import contextlib
import os


def use_batch_scheduling() -> None:
    """Prevents the calling thread, and those it starts later, from preempting others on wake-up.

    An actor wakes up whenever an action arrives. On the learner's machine it would mostly preempt
    the learner's network thread while that is still sending actions to other actors, even if
    another core is idle. A batch process (`SCHED_BATCH`) waits for a core, but gets the same share
    of the machine. A policy chosen by the user is kept; if the system forbids the change, nothing
    happens.
    """
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
