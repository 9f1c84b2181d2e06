"""Actors do not interrupt the learner by waking up, and keep what their user has chosen."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import pytest

from seed_rl.common.system import scheduling

set_scheduler = os.sched_setscheduler  # As it is before a test replaces it.


def policy_after(prepare: Callable[[], None]) -> int:
    """The scheduling policy of a thread that called `prepare`; only that thread changes."""
    policies = []

    def run() -> None:
        set_scheduler(0, os.SCHED_OTHER, os.sched_param(0))
        prepare()
        policies.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return policies[0]


def test_a_usual_thread_becomes_a_batch_thread_and_others_stay() -> None:
    before = os.sched_getscheduler(0)
    assert policy_after(scheduling.use_batch_scheduling) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == before


def test_a_policy_that_the_user_chose_stays() -> None:
    def choose_idle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        scheduling.use_batch_scheduling()

    assert policy_after(choose_idle) == os.SCHED_IDLE


def test_a_system_that_forbids_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbid(*unused: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbid)
    assert policy_after(scheduling.use_batch_scheduling) == os.SCHED_OTHER
