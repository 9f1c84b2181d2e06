"""Errors that the user can fix, and exit codes."""

from __future__ import annotations

import enum
import functools
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Python 3.9 lacks it, and is to say which versions do.
    from typing import ParamSpec

    _P = ParamSpec("_P")

INTERRUPTED = 128 + signal.SIGINT
"""The exit code that shells report for Ctrl-C."""


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


def exits(main: Callable[_P, int]) -> Callable[_P, int]:
    """Decorates a program's main function, to end with an exit code instead of a traceback.

    A `UserError` is printed; Ctrl-C ends the program silently.
    """

    @functools.wraps(main)
    def guarded(*arguments: _P.args, **named: _P.kwargs) -> int:
        try:
            return main(*arguments, **named)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        except KeyboardInterrupt:
            return INTERRUPTED

    return guarded
