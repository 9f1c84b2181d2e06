"""A signal for this process when its parent dies."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def signal_me(number: signal.Signals = signal.SIGKILL) -> None:
    """Asks the kernel to send this process a signal when the thread that started it ends.

    If that has ended already, nothing happens: check `os.getppid()` afterwards.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
