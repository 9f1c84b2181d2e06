"""When a crashed actor starts again."""

from __future__ import annotations

import pytest

from seed_rl.cluster import run
from seed_rl.launch.restarts import CrashRecord, RestartPolicy, to_blame
from tests.helpers import run_python


def test_pauses_double_until_an_actor_is_given_up() -> None:
    record, pauses = CrashRecord(RestartPolicy()), []
    while not record.given_up:
        assert not record.crashed(1.0)
        pauses.append(record.pause_s)
    assert pauses == [1, 2, 4, 8, 16, 30]


def test_a_healthy_run_clears_the_record() -> None:
    policy = RestartPolicy()
    record = CrashRecord(policy, failures=5)
    assert record.crashed(policy.healthy_s)
    assert record.failures == 1 and not record.given_up
    assert policy.healthy_s > run.MOVED_S  # To look for a learner is not to play.


@pytest.mark.parametrize(
    ("failures", "lifetime", "said", "code"),
    [("0", "3", "1 1", 0), ("3", "3", "4 8", 0), ("5", "3", "6 30", 1), ("5", "100", "1 1", 0)],
)
def test_what_job_sh_asks(failures: str, lifetime: str, said: str, code: int) -> None:
    done = run_python("-m", "seed_rl.launch.restarts", failures, lifetime, code=code)
    assert done.stdout.strip() == said, done.stderr


@pytest.mark.parametrize(
    ("codes", "to_be_blamed"),
    [
        ([6, 2], 1),  # A user error, though others noticed first.
        ([1, 2], 1),
        ([6, 137, 6], 1),
        ([1, 137], 0),
        ([0, 1], 1),
        ([0, 0], 0),
        ([6, 6], 0),
        ([75, 75], 0),
        ([5, 6], 0),
    ],
)
def test_which_of_several_learners_explains_the_end(codes, to_be_blamed):
    """Guards a restart that cannot help, and messages that name a victim."""
    assert to_blame(codes) == to_be_blamed
