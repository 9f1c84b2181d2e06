"""Defines the flags of learners and actors, for programs with absl flags of their own.

Programs of this package use `options.define_flags` instead. If the program also defines a flag,
before or after, its definition wins. After its import an uncaught `UserError`, or the program's
own error that --run_mode is missing, prints one line and exits with code 2. `./run_local.sh` can
start the program.
"""

from __future__ import annotations

import atexit
import json
import sys
from types import TracebackType
from typing import Any

from absl import flags

from seed_rl.common.acting import program
from seed_rl.common.acting.actor import ActorConfig
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import MISSING_MODE, RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import saved_run
from seed_rl.compat import imported_flags, old_flags

imported_flags.provide(
    RunConfig, ActorConfig, LearnerConfig, ContinuousDistributionConfig, DeviceConfig
)
old_flags.provide()

_show_traceback: Any = sys.excepthook


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if _misses_run_mode(error):
        error = UserError(MISSING_MODE)
    if not isinstance(error, UserError):
        _show_traceback(kind, error, trace)
        return
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(2)


def _misses_run_mode(error: BaseException) -> bool:
    """Whether the error is the program's own complaint that --run_mode was not given."""
    known = flags.FLAGS.is_parsed() and "run_mode" in flags.FLAGS
    missing = known and flags.FLAGS["run_mode"].value is None
    return missing and isinstance(error, ValueError) and "run mode" in str(error).lower()


sys.excepthook = _show


def _answer_check() -> None:
    """Answers --only_check_args of `./run_local.sh`, at which absl exits before it calls `main`."""
    values: Any = flags.FLAGS
    if not values.is_parsed() or not getattr(values, "only_check_args", False):
        return
    try:
        identity = imported_flags.names_of_environments(values)
        program.answer_check(lambda: {"refusal": saved_run.refusal(values.logdir, identity)})
    except UserError as error:
        print(json.dumps({"logdir": values.logdir, "refusal": str(error)}))


atexit.register(_answer_check)
