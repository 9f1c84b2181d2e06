"""How the system's scheduler treats a process that shares its machine with a learner."""

from __future__ import annotations

import contextlib
import os


def use_batch_scheduling() -> None:
    """Stops the calling thread, and those it starts later, from interrupting others by waking up.

    An actor wakes up whenever an action arrives. On a machine that it shares with the learner that
    would mostly interrupt the learner's network thread in the midst of sending actions to others,
    while another core is idle. A batch process (`SCHED_BATCH`) waits for a core, and has the same
    share of the machine. A policy or niceness that the user has chosen stays, and where the system
    forbids the change, nothing happens.
    """
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
