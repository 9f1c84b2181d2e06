"""Flags in place of the files that name them.

    python -m seed_rl.cluster.flag_files [--flag=value ...]

prints the flags, a line each. Any Python runs this. Exit code 2: a file cannot be read; the message
says why.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seed_rl.common.errors import UserError
from seed_rl.common.system import flag_files


def main(arguments: Sequence[str]) -> int:
    try:
        for flag, _ in flag_files.expanded(arguments):
            print(flag)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
