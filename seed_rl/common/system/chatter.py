"""Filters TensorFlow's start-up messages out of standard error.

Its C++ libraries print while they load and search for GPUs, in part regardless of
`TF_CPP_MIN_LOG_LEVEL`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

from seed_rl.common.system import isolated

_SOURCE = r" +\d+ [\w./-]+\.(cc|cpp|cu|h):\d+\]"
_CHATTER = re.compile(
    "|".join(
        (
            r"WARNING: All log messages before absl::InitializeLog\(\)",
            # Information and warnings of C++, in two formats.
            r"[IW]\d{4} \d\d:\d\d:[\d.]+" + _SOURCE,
            r"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] ",
            r"To enable the following instructions",
            # Of errors, only those of the search for GPUs and of libraries that register twice.
            r"(E\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: E ).*"
            r"(cuInit|cudart_stub|cuda_executor|cuda_platform|cuda_diagnostics"
            r"|computation_placer|Unable to register cu)",
        )
    )
)


def is_chatter(line: str) -> bool:
    """Whether a line is from TensorFlow and never explains a failure."""
    return _CHATTER.match(line.lstrip()) is not None


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Filters this process's standard error within the context.

    The filter is another process, so that the last lines of a crashing one still arrive.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    reader = subprocess.Popen(
        isolated.command("seed_rl.common.system.chatter"),
        stdin=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,  # Protects it from Ctrl-C.
    )
    assert reader.stdin is not None
    os.dup2(reader.stdin.fileno(), 2)
    reader.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)  # Closes the pipe, which ends the reader.
        os.close(stderr)
        reader.wait()


def main() -> None:
    """Copies standard input to standard error without the chatter."""
    for line in sys.stdin.buffer:
        if not is_chatter(line.decode(errors="replace")):
            os.write(2, line)


if __name__ == "__main__":
    main()
