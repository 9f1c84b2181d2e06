"""The part of a program's log that is worth showing to the user."""

from __future__ import annotations

from seed_rl.common.errors import UserError
from seed_rl.common.system.chatter import is_chatter
from seed_rl.launch.process import Process, describe_exit

_MAX_CHATTER = 50  # Lines; TensorFlow prints about ten.


def tail(process: Process, lines: int) -> list[str]:
    """The last lines worth reading since the process last started."""
    printed = process.tail(lines + _MAX_CHATTER)
    return [line for line in printed if not is_chatter(line)][-lines:]


def last_words(process: Process, code: int) -> str:
    """How it exited, with the end of its log; for a `UserError` just the message."""
    lines = tail(process, 30)
    errors = [line for line in lines if line.startswith("error: ")]
    if code == UserError.exit_code and errors:
        return f"{process.name}: {errors[-1].removeprefix('error: ')}"
    text = "".join(f"\n  | {line}" for line in lines)
    return f"the {process.name} {describe_exit(code)} ({process.log}):{text}"
