"""What TensorFlow prints whatever happens, kept from what people read (no TensorFlow here).

Its C++ libraries write to standard error while they are loaded and look for GPUs; not all of it
heeds `TF_CPP_MIN_LOG_LEVEL`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator

_SOURCE = r" +\d+ [\w./-]+\.(cc|cpp|cu|h):\d+\]"
_CHATTER = re.compile(
    "|".join(
        (
            r"WARNING: All log messages before absl::InitializeLog\(\)",
            # Information and warnings of C++, in the two forms there are.
            r"[IW]\d{4} \d\d:\d\d:[\d.]+" + _SOURCE,
            r"\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: [IW] ",
            r"To enable the following instructions",
            # Errors only of the search for GPUs, and of libraries that register twice.
            r"(E\d{4} |\d{4}-\d\d-\d\d \d\d:\d\d:[\d.]+: E ).*"
            r"(cuInit|cudart_stub|cuda_executor|cuda_platform|cuda_diagnostics"
            r"|computation_placer|Unable to register cu)",
        )
    )
)


def is_chatter(line: str) -> bool:
    """Whether a line is TensorFlow's and has nothing to do with what went wrong."""
    return _CHATTER.match(line.lstrip()) is not None


@contextlib.contextmanager
def left_out() -> Iterator[None]:
    """Leaves chatter out of this process's standard error.

    The lines pass through another process, so that the last words of one that crashes arrive.
    """
    sys.stderr.flush()
    stderr = os.dup(2)
    reader = subprocess.Popen(
        [sys.executable, "-m", "seed_rl.common.system.chatter"],
        stdin=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,  # Ctrl-C is not for it.
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
