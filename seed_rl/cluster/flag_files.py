"""Flags in place of the files that name them.

    python -m seed_rl.cluster.flag_files [--flag=value ...]

prints the flags, a line each. Any Python runs this. Exit code 2: a file cannot be read; the message
says why.
"""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Sequence

from seed_rl.common.errors import UserError

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def with_flag_files(flags: Sequence[str], reading: tuple[pathlib.Path, ...] = ()) -> list[str]:
    """The flags, with those of flag files in their place: images need not have the files.

    Args:
      flags: as given.
      reading: the files that these flags are from, each named by the one before.

    Raises:
      UserError: a file cannot be read, or includes itself.
    """
    found: list[str] = []
    for flag in flags:
        if not flag.startswith("--flagfile="):
            found.append(flag)
            continue
        path = pathlib.Path(flag.partition("=")[2])
        path = (path if path.exists() else _ROOT / path).resolve()
        if path in reading:
            raise UserError(
                f"{flag}: the file includes itself, perhaps through another: remove that line."
            )
        try:
            lines = path.read_text("utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{flag}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{flag}: this is not a text file.") from error
        inner = [line for line in map(str.strip, lines) if line.startswith("-")]
        found += with_flag_files(inner, (*reading, path))
    return found


def main(arguments: Sequence[str]) -> int:
    try:
        for flag in with_flag_files(arguments):
            print(flag)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
