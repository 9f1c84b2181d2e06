"""What the check of an environment finds, and calls that may fail (no TensorFlow here)."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import signal
import threading
import traceback
from collections.abc import Iterator
from typing import Any

from seed_rl.common.acting.batched_env import EnvironmentFailure
from seed_rl.common.errors import UserError

_NATIVE_GRACE_S = 3.0
_STDERR = 2  # Not `sys.stderr`, which may not be a file.


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something to fix.

    Attributes:
      name: what kind it is, in one word.
      must: whether training cannot work unless it is fixed.
      what: what is wrong.
      cost: what it leads to.
      fix: what to do.
    """

    name: str
    must: bool
    what: str
    cost: str
    fix: str


class Unusable(Exception):
    """The environment fails in a way that ends the check; the finding is already recorded."""


class Findings:
    """The findings so far, one of each kind."""

    def __init__(self) -> None:
        self._found: dict[str, Finding] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(sorted(self._found.values(), key=lambda finding: not finding.must))

    def must(self, name: str, what: str, cost: str, fix: str) -> None:
        """Adds a finding that keeps training from working."""
        self._found.setdefault(name, Finding(name, True, what, cost, fix))

    def should(self, name: str, what: str, cost: str, fix: str) -> None:
        """Adds a finding that makes training slower or worse."""
        self._found.setdefault(name, Finding(name, False, what, cost, fix))

    def not_finite(self, what: str) -> None:
        """Adds that observations or rewards are not finite."""
        self.must(
            "nan",
            f"{what}.",
            "Gradients become NaN or infinite; the learner skips such batches and stops if they "
            "keep coming.",
            "Find the division by 0, the unset value or the simulation that diverges; end the "
            "episode before that.",
        )

    def not_deterministic(self, where: str = "") -> None:
        """Adds that the same seed gave other episodes."""
        self.should(
            "determinism",
            f"Two runs with the same seed and the same actions differ{where}.",
            "Runs cannot be repeated: --seed has no effect on this environment.",
            "Draw all randomness from self.np_random, which super().reset(seed=seed) sets, and not "
            "from random, np.random or the time.",
        )

    @contextlib.contextmanager
    def of(self, call: str, timeout_s: float) -> Iterator[None]:
        """Records exceptions and hangs of a call as findings.

        Raises:
          Unusable: instead.
        """
        try:
            with _time_limit(timeout_s):
                yield
            return
        except UserError as error:
            self.must(
                "refused", str(error), "The actor exits with this error.", "Fix the error above."
            )
        except _TooLong:
            self.must(
                "hangs",
                f"{call} did not return within {timeout_s:g} s.",
                "The actor blocks forever.",
                "Add a timeout to what it waits for (a simulator, a lock, a download), and raise.",
            )
        except (Exception, SystemExit) as error:
            raised: BaseException = error
            if isinstance(error, EnvironmentFailure) and error.__cause__:  # A vector environment's.
                raised = error.__cause__
            frame = traceback.extract_tb(raised.__traceback__)[-1]
            did = "called sys.exit()" if isinstance(raised, SystemExit) else f"raised {raised!r}"
            self.must(
                "raises",
                f"{call} {did} ({frame.filename}, line {frame.lineno}).",
                "The actor exits and is restarted; unrolls in progress are lost.",
                "Fix the error there.",
            )
        raise Unusable


class _TooLong(BaseException):
    """Not an Exception, which the environment might catch."""


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises _TooLong in the block after this time; has no effect outside the main thread.

    Native code that does not return cannot be interrupted: some seconds later, Python's traceback
    is printed and the process exits with code 1.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + _NATIVE_GRACE_S, exit=True, file=_STDERR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
