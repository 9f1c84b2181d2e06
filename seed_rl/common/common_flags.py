"""Flags of learners and actors, for programs that define their own with absl.

    from seed_rl.common import common_flags  # noqa: F401 - defines flags

Programs of this package use `config.define_flags`. A flag that the program defines too, before or
after, is the program's. Importing this also makes uncaught `UserError`s end a program as they do
ours: with one line and exit code 2; and so a program's own complaint that it has no run mode.
"""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from absl import flags

from seed_rl.common.acting.actor import ActorConfig
from seed_rl.common.config import options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import MISSING_MODE, RunConfig
from seed_rl.common.errors import UserError

options.provide_flags(
    RunConfig, ActorConfig, LearnerConfig, ContinuousDistributionConfig, DeviceConfig
)

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
    """Whether a program found, in its own words, that --run_mode was not given."""
    known = flags.FLAGS.is_parsed() and "run_mode" in flags.FLAGS
    missing = known and flags.FLAGS["run_mode"].value is None
    return missing and isinstance(error, ValueError) and "run mode" in str(error).lower()


sys.excepthook = _show
