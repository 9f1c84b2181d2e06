"""When a crashed actor, or a group of learners of which one has crashed, is restarted.

The counts and pauses are the same under ./run_local.sh, on the machines of a cluster, and in
Slurm's jobs (slurm/job.sh), which ask for a decision with

    python -m seed_rl.launch.restarts FAILURES LIFETIME_S

This prints the failures in a row, with this one, and the pause in seconds; its exit code is 1 if
the actor is given up. SkyPilot, Docker and Kubernetes count by rules of their own; an error of an
actor of `experiment.run` ends the run.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence

from seed_rl.common.errors import ExitCode, LostLearnerError, NotSavedError, UserError
from seed_rl.common.system.backoff import backoff_s

FOLLOW_S = 20.0
"""How long the others may take to notice and end after one of several learners has failed."""


@dataclasses.dataclass(frozen=True)
class RestartPolicy:
    """How often and how soon to restart.

    Attributes:
      first_pause_s: pause before the first restart, doubled each time. Importing takes about two
        seconds, so an actor that keeps crashing costs little.
      longest_pause_s: upper limit of the pause.
      healthy_s: an actor that ran for so long has played: earlier failures no longer count. Twice
        as long as it may look for a learner that has moved (`cluster.run.MOVED_S`).
      most_failures: failures in a row after which it is given up. With the pauses above, that takes
        45 seconds: by then, a file system or network has recovered from a hiccup, a broken
        environment has not.
    """

    first_pause_s: float = 1.0
    longest_pause_s: float = 30.0
    healthy_s: float = 60.0
    most_failures: int = 6


class CrashRecord:
    """The crashes of one actor.

    Attributes:
      failures: crashes in a row, without a healthy run in between.
    """

    def __init__(self, policy: RestartPolicy, failures: int = 0):
        self._policy = policy
        self.failures = failures

    def crashed(self, lifetime_s: float) -> bool:
        """Records a crash after `lifetime_s` seconds; returns whether that run was healthy."""
        healthy = lifetime_s >= self._policy.healthy_s
        self.failures = 1 if healthy else self.failures + 1
        return healthy

    @property
    def given_up(self) -> bool:
        """Whether another restart would not help."""
        return self.failures >= self._policy.most_failures

    @property
    def pause_s(self) -> float:
        """Seconds until the next start."""
        return backoff_s(self.failures, self._policy.first_pause_s, self._policy.longest_pause_s)


def actor_is_final(code: int) -> bool:
    """Whether an actor's exit code says that starting it again would not help."""
    return code in (0, UserError.exit_code, ExitCode.SUPERSEDED)


def is_final(code: int) -> bool:
    """Whether a learner's exit code says that starting it again would not help."""
    return code in (0, UserError.exit_code, NotSavedError.exit_code)


def to_blame(codes: Sequence[int]) -> int:
    """Which of several learners caused all of them to end.

    The first with a user error or an unsaved checkpoint; else the first that failed for another
    reason than losing another learner.

    Args:
      codes: their exit codes, in the order in which they ended.
    """
    lost = LostLearnerError.exit_code

    def innocence(i: int) -> tuple[bool, bool, bool]:
        return not (codes[i] and is_final(codes[i])), codes[i] == 0, codes[i] == lost

    return min(range(len(codes)), key=innocence)


def main() -> int:
    """See above."""
    record = CrashRecord(RestartPolicy(), failures=int(sys.argv[1]))
    record.crashed(float(sys.argv[2]))
    print(record.failures, f"{record.pause_s:.0f}")
    return int(record.given_up)


if __name__ == "__main__":
    sys.exit(main())
