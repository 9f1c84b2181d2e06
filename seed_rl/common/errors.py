"""Errors that are the user's to mend."""


class UserError(Exception):
    """A mistake in flags, files or the machine's setup that the user can mend.

    Programs print its message without a traceback and exit with `exit_code`, so the message must
    say what is wrong and what to do about it.
    """

    exit_code = 2


class NotSavedError(UserError):
    """Training has ended, and its last checkpoint could not be written."""

    exit_code = 5
