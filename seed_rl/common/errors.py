"""Errors that the user can fix."""


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
    """Another learner of the run is gone or silent; all of them end, and start again together."""

    exit_code = 6
