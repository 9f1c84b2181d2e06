"""Behaviour at a terminal: closed pipes and Ctrl-C."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from seed_rl.common.errors import INTERRUPTED


def end_without_reader() -> None:
    """Ends this process silently when the reader of its output is gone (`--help | head`).

    Only for programs that just print: a closed network connection would end the process too.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def drop_output() -> None:
    """Discards standard output from now on, for use after its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def replace_unknown_characters() -> None:
    """Has standard output show "?" for characters that its encoding lacks, instead of an error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that stop a run: SIGHUP, of a closed terminal, unless nohup has it ignored."""
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if ignored else (signal.SIGHUP,)))


def interrupt_ends() -> object:
    """Makes Ctrl-C end this process immediately, unless ignored; returns the previous handler.

    As an exception, it would print tracebacks of imports of large packages.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        return signal.SIG_IGN
    return signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


@contextlib.contextmanager
def interrupt_requests() -> Iterator[Callable[[], bool]]:
    """Within the context, the first Ctrl-C is a request and the second raises KeyboardInterrupt.

    An exception at a random place may be lost in native code, or come out as another error.

    Yields:
      Whether Ctrl-C was pressed; never, if it is ignored.
    """
    requested = threading.Event()

    def request(*_: object) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, request)
    try:
        yield requested.is_set
    finally:
        signal.signal(signal.SIGINT, before)
