"""How programs behave at a terminal. Only the standard library is used."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


def end_without_reader() -> None:
    """Makes a reader that has gone (`--help | head`) the end of this process, without a traceback.

    For programs that are only to print something: one that has connections would end with them.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def drop_output() -> None:
    """Goes on after the reader of the standard output has gone; what is printed to it is lost."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def interrupt_ends(code: int = 130) -> object:
    """Makes Ctrl-C end this process at once, unless it is ignored; returns the handler before.

    As an exception, it would end in tracebacks out of the imports of large packages.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return signal.SIG_IGN
    return signal.signal(signal.SIGINT, lambda *_: os._exit(code))


@contextlib.contextmanager
def interrupt_raises() -> Iterator[None]:
    """Makes Ctrl-C a KeyboardInterrupt within the context, unless it is ignored."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
