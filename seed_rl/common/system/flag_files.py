"""Flags in place of the files that name them. Standard library only.

    python -m seed_rl.common.system.flag_files [--flag=value ...]

prints the flags, a line each, for machines that do not have the files. Exit code 2: a file cannot
be read; the message says why.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from seed_rl.common.errors import UserError, exits
from seed_rl.common.system import shipped


def expanded(
    arguments: Sequence[str],
    source: str = "",
    reading: tuple[str, ...] = (),
    again: bool = False,
) -> Iterator[tuple[str, str]]:
    """Arguments, with those in flag files in their place, and what each is from.

    Files of the package, such as seed_rl/football/workstation.flags, are found from anywhere.

    Args:
      arguments: as given.
      source: what they are from; for others it is "flag file PATH".
      reading: the files that they are from, each named by the one before.
      again: whether they are read elsewhere, too: pipes, which give their text once, are left out.

    Raises:
      UserError: a file cannot be read, or includes itself.
    """
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, path = argument.partition("=")
        if name not in ("--flagfile", "-flagfile"):
            yield argument, source
            continue
        path = (path if equals else next(remaining, "")).strip()
        if not path:
            raise UserError("--flagfile= has no file name. Write --flagfile=PATH, or leave it out.")
        found = shipped.find(path) or os.path.expanduser(path)
        real = os.path.realpath(found)
        if real in reading:
            raise UserError(
                f"--flagfile={path}: the file includes itself, perhaps through another: remove "
                "that line."
            )
        if again and not os.path.isfile(found):
            continue
        try:
            with open(found, encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except OSError as error:
            raise UserError(f"--flagfile={path}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise UserError(f"--flagfile={path}: this is not a text file.") from error
        inner = [line for line in lines if line and not line.startswith(("#", "//"))]
        yield from expanded(inner, f"flag file {path}", (*reading, real), again)


@exits
def main(arguments: Sequence[str]) -> int:
    """See above."""
    for flag, _ in expanded(arguments):
        print(flag)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
