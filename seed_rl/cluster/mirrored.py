"""Runs a learner whose --logdir is a URL: in a local directory, with a mirror."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from seed_rl.cluster.mirror import DisplacedError, Mirror
from seed_rl.cluster.remote_files import RemoteFiles
from seed_rl.common.errors import NotSavedError, UserError
from seed_rl.common.system.file_lock import spared
from seed_rl.common.system.stop_signal import SIGNALS
from seed_rl.launch.process import die_with_parent

_TICK_S = 0.5
_REPORT_S = 600.0  # Between warnings about the same problem.
_LAST_TRIES = 3
_PAUSE_S = 5.0


def run(
    command: Callable[[Path], Sequence[str]],
    url: str,
    environment: Mapping[str, str],
    after_copy: Callable[[Path], None],
    period_s: float,
    stopped_code: int = 0,
) -> int:
    """Restores the run from `url`, runs a learner, and copies its files to `url` until it ends.

    SIGTERM and SIGINT are passed on to the learner; what it then saves is also copied. Before it
    has started, they end the waiting or the restoring.

    Args:
      command: gives the learner's command line for a local logdir.
      url: of the run's files.
      environment: the learner's environment variables.
      after_copy: called with the local logdir as soon as it is restored, and after each round of
        copying.
      period_s: seconds between rounds.
      stopped_code: exit code if a signal comes before the learner has started.

    Returns:
      The learner's exit code; 128 plus the number of a signal that killed it.

    Raises:
      UserError: the files cannot be restored, another learner is active, or (exit code 5) the last
        files could not be copied; they are then still on this machine's disk.
    """
    code = stopped_code
    early = contextlib.suppress(_StoppedEarlyError)
    with _scratch() as scratch, early, _Signals() as signals:
        logdir = scratch / (url.rstrip("/").rpartition("/")[2] or "run")
        logdir.mkdir()
        mirror = Mirror(RemoteFiles(url), logdir)
        try:
            mirror.claim()
            with mirror.showing_life():
                mirror.restore()
                after_copy(logdir)
                learner = list(command(logdir))
                signals.early = False
                code = _run(learner, environment, signals, mirror, period_s, after_copy)
                _copy_the_rest(mirror)
                after_copy(logdir)
        except _StoppedEarlyError:
            pass
        except (DisplacedError, NotSavedError):
            raise  # The lease is another learner's, or the copy is not up to date.
        except Exception:
            signals.early = False  # A signal does not interrupt this.
            _release(mirror)
            raise
        _release(mirror)
    return code


def _release(mirror: Mirror) -> None:
    if mirror.claimed:
        with contextlib.suppress(Exception):  # The next learner then waits a little.
            mirror.release()


@contextlib.contextmanager
def _scratch() -> Iterator[Path]:
    """A directory, removed at the end unless the learner's last files could not be copied."""
    path = Path(tempfile.mkdtemp(prefix="seed_rl-"))
    try:
        # Otherwise the next round of copying would remove the copies of files that are not written
        # again, such as config.json.
        with spared(path):
            yield path
    except NotSavedError:
        raise
    except UserError:
        shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(path, ignore_errors=True)


class _StoppedEarlyError(BaseException):
    """A signal before the learner has started; no handler of `Exception` retries."""


class _Signals:
    """Passes SIGTERM and SIGINT on to the learner; while `early`, raises `_StoppedEarlyError`."""

    def __init__(self) -> None:
        self.early = True
        self.received = False
        self.learner: subprocess.Popen[bytes] | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> _Signals:
        self._previous = {number: signal.signal(number, self._pass_on) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, frame: types.FrameType | None) -> None:
        self.received = True
        if self.early:
            self.early = False  # Only once: a second signal must not interrupt what follows.
            raise _StoppedEarlyError
        if self.learner is not None:
            self.learner.send_signal(number)


def _run(
    command: list[str],
    environment: Mapping[str, str],
    signals: _Signals,
    mirror: Mirror,
    period_s: float,
    after_copy: Callable[[Path], None],
) -> int:
    """Runs the learner and copies meanwhile; returns its exit code."""
    learner = subprocess.Popen(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C reaches it once, through us.
        preexec_fn=die_with_parent(os.getpid(), signal.SIGKILL),
    )
    signals.learner = learner
    if signals.received:  # The signal came before the handler knew the process.
        learner.terminate()
    warned = -_REPORT_S
    due = time.monotonic() + period_s
    try:
        while learner.poll() is None:
            time.sleep(_TICK_S)
            if time.monotonic() < due:
                continue
            try:
                mirror.copy()
                after_copy(mirror.logdir)
            except DisplacedError:
                raise
            except Exception as error:  # Each file system has errors of its own.
                if time.monotonic() - warned >= _REPORT_S:
                    warned = time.monotonic()
                    _warn(mirror, error)
            due = time.monotonic() + period_s
    finally:
        if learner.poll() is None:
            learner.kill()
            learner.wait()
    code = learner.returncode
    return code if code >= 0 else 128 - code


def _warn(mirror: Mirror, error: Exception) -> None:
    logging.warning(
        "Cannot copy to %s (%s: %s). Training continues, and copying will be retried; the newest "
        "checkpoint there is %s.",
        mirror.url,
        type(error).__name__,
        " ".join(str(error).split())[:300],
        mirror.newest() or "none",
    )


def _copy_the_rest(mirror: Mirror) -> None:
    """Copies what the learner left.

    Raises:
      NotSavedError: it cannot be copied.
    """
    for left in range(_LAST_TRIES - 1, -1, -1):
        try:
            mirror.copy()
            return
        except DisplacedError:
            raise
        except Exception as error:  # Each file system has errors of its own.
            _warn(mirror, error)
            if not left:
                raise NotSavedError(
                    f"The learner has ended, but its last files could not be copied to "
                    f"{mirror.url}. They are in {mirror.logdir} on this machine."
                ) from error
            time.sleep(_PAUSE_S)
