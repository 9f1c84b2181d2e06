"""Callbacks of `seed_rl.train`: called in its process for a learner in another one.

The learner connects to a Unix socket, sends each event, and waits for the answer: the reason to
stop, if any, and the first error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from seed_rl.common.callbacks import Callback, Report, Run, check
from seed_rl.common.errors import UserError

ADDRESS = "SEED_RL_CALLBACKS"
"""Environment variable of the learner: the socket."""


_GONE = "The process that called seed_rl.train is gone"


def of_caller() -> list[Callback]:
    """The callbacks of `seed_rl.train`, for the first learner of the process that it started."""
    # The caller serves one learner at a time.
    address = os.environ.pop(ADDRESS, None)
    return [RemoteCallbacks(address)] if address else []


class RemoteCallbacks(Callback):
    """The learner's side: passes everything on.

    Args:
      address: of the socket.
    """

    def __init__(self, address: str):
        self._address = address

    def on_start(self) -> None:
        try:
            self._caller = connection.Client(self._address)
            self._caller.send((self.run.logdir, dict(self.run.options)))
        except OSError as error:
            raise UserError(f"{_GONE}: {error!r}") from error
        self._pass_on("on_start")

    def on_report(self, report: Report) -> None:
        self._pass_on("on_report", report)

    def on_save(self, path: Path) -> None:
        self._pass_on("on_save", path)

    def on_end(self, phase: str) -> None:
        self._pass_on("on_end", phase)
        self._caller.close()

    def _pass_on(self, event: str, *arguments: Any) -> None:
        try:
            self._caller.send((event, arguments))
            while isinstance(answer := self._caller.recv(), Path):
                self._caller.send(self.run.save(answer))
        except (EOFError, OSError) as error:
            raise UserError(f"{_GONE}: {error!r}") from error
        reason, problem = answer
        if problem:
            raise UserError(f"A callback of seed_rl.train raised {problem}")
        if reason:
            self.run.stop(reason)


@contextlib.contextmanager
def hosted(callbacks: Sequence[Callback]) -> Iterator[dict[str, str]]:
    """Within the context, calls them for a learner that has the environment variables yielded.

    Raises:
      TypeError: one of them is not a `Callback`.
      BaseException: what a callback has raised.
    """
    check(callbacks)
    if not callbacks:
        yield {}
        return
    errors: list[BaseException] = []
    with tempfile.TemporaryDirectory(prefix="seed_rl_") as folder:
        address = f"{folder}/callbacks"
        with connection.Listener(address, "AF_UNIX") as listener:
            thread = threading.Thread(
                target=_host, args=(listener, callbacks, errors), name="callbacks", daemon=True
            )
            thread.start()
            try:
                yield {ADDRESS: address}
            finally:
                connection.Client(address).close()  # The learner may never have connected.
                thread.join()
                if errors:
                    raise errors[0] from None


def _host(
    listener: connection.Listener, callbacks: Sequence[Callback], errors: list[BaseException]
) -> None:
    while True:  # Learners that crashed start again.
        with listener.accept() as learner:
            try:
                logdir, options = learner.recv()
            except (EOFError, OSError):  # `hosted` ends.
                return
            with contextlib.suppress(EOFError, OSError):
                _serve(learner, callbacks, logdir, options, errors)


def _serve(
    learner: connection.Connection,
    callbacks: Sequence[Callback],
    logdir: Path,
    options: dict[str, Any],
    errors: list[BaseException],
) -> None:
    """Calls them for one life of the learner."""

    def save(directory: Path) -> Any:
        learner.send(directory)
        return learner.recv()

    run = Run(logdir, options, save)
    for callback in callbacks:
        callback.run = run
    while True:
        event, arguments = learner.recv()
        for callback in callbacks:
            try:
                getattr(callback, event)(*arguments)
            except BaseException as error:
                errors.append(error)
        learner.send((run.stopped, repr(errors[0]) if errors else None))
