"""Whether a new run may continue the one saved in its logdir."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.system import running_program

START_OVER = (
    "To start over, choose another --logdir; ./run_local.sh also has --restart=fresh, which moves "
    "the old run aside."
)

_PROGRAM = "the program"
# Options that no variable of a network or an optimizer depends on.
_NOT_IN_VARIABLES = frozenset(
    name
    for cls in (RunConfig, LearnerConfig, DeviceConfig, ReplayConfig)
    for field in dataclasses.fields(cls)
    for name in (field.name, *field.metadata["aliases"])
)


def check(logdir: str | os.PathLike[str], environment: Mapping[str, Any]) -> None:
    """Refuses to continue a run of another program or another environment.

    Raises:
      UserError: this program must not continue the run; see `refusal`.
    """
    if message := refusal(logdir, environment):
        raise UserError(message)


def refusal(logdir: str | os.PathLike[str], environment: Mapping[str, Any]) -> str | None:
    """Why this program must not continue the run saved in `logdir`; None if it may.

    A run without a checkpoint starts over, so it is never refused.

    Args:
      logdir: directory of the new run; may be missing.
      environment: the options that define the environment, by name.
    """
    entries = checkpoint_list.list_checkpoints(Path(logdir) / checkpoint_list.DIRECTORY)
    if not entries:
        return None
    try:
        saved = run_record.read(entries[-1].path)
    except UserError:
        return None  # Restoring will report what is wrong with it.
    changes = differences(saved, {**environment, run_record.PROGRAM: running_program.name()})
    if not changes:
        return None
    message = f"{logdir} contains a different run: {'; '.join(changes)}. {START_OVER}"
    if not changes[0].startswith(_PROGRAM):
        message += (
            f" To start from its weights: use another --logdir and --init_checkpoint={logdir}."
        )
    return message


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The options that differ between a saved run and now, each with both values.

    Args:
      saved: options from a config.json.
      now: options by name; those missing from `saved` are ignored.
    """
    now = json.loads(json.dumps(dict(now), default=str))
    changes = []
    if not _same_program(saved.get(run_record.PROGRAM), now.get(run_record.PROGRAM)):
        changes.append(_change(_PROGRAM, saved[run_record.PROGRAM], now[run_record.PROGRAM]))
    for name in sorted(now.keys() & saved.keys() - run_record.NOT_OPTIONS):
        if now[name] != saved[name]:
            changes.append(_change(f"--{name}", saved[name], now[name]))
    return changes


def suspects(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The differences that may explain why a checkpoint does not fit a network or an optimizer.

    Args:
      saved: options from a config.json.
      now: all options of the run, by name.
    """
    now = {name: value for name, value in now.items() if name not in _NOT_IN_VARIABLES}
    exact = {name: value for name, value in now.items() if not isinstance(value, float)}
    return differences(saved, exact) or differences(saved, now)


def _change(name: str, old: Any, new: Any) -> str:
    return f"{name} was {_shown(old)}, is now {_shown(new)}"


def _shown(value: Any) -> str:
    """The value as it is written on a command line."""
    if value is None or value == []:
        return "not given"
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _same_program(old: Any, new: Any) -> bool:
    """Modules must have the same name; a script may have been moved."""
    if not old or not new:
        return True
    if "/" not in f"{old}{new}":
        return bool(old == new)
    return running_program.stem(str(old)) == running_program.stem(str(new))
