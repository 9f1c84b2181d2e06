"""Errors that the user can fix, and exit codes."""

from __future__ import annotations

import enum


class UserError(Exception):
    """A mistake in flags, files or the machine's setup that the user can fix.

    Programs print its message without a traceback and exit with `exit_code`, so the message must
    say what is wrong and how to fix it.
    """

    exit_code = 2


class NotSavedError(UserError):
    """Training ended, but its last checkpoint could not be written."""

    exit_code = 5


class LostLearnerError(UserError):
    """Another learner of the run is gone or silent; all learners end, to be restarted together."""

    exit_code = 6


class ExitCode(enum.IntEnum):
    """Exit codes of an actor process; user errors have codes of their own."""

    ENVIRONMENT_FAILED = 1
    SUPERSEDED = 3
    NO_LEARNER = 4
