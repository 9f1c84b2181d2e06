"""Whether a new run may continue the one saved in its logdir."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.flag_definitions import shown
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.run_files.checkpoint_list import START_OVER
from seed_rl.common.system import running_program

_PROGRAM = "the program"
_AGENT = "--agent"
_ORIGINAL = re.compile(r"ckpt-\d+\.index")
# Options that no variable of a network or an optimizer depends on.
_NOT_IN_VARIABLES = frozenset(
    name
    for cls in (RunConfig, LearnerConfig, DeviceConfig, ReplayConfig)
    for field in dataclasses.fields(cls)
    for name in (field.name, *field.metadata["aliases"])
)


def record(logdir: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The options of the run that a learner would continue in `logdir`; None: it starts one.

    Raises:
      UserError: the directory of checkpoints cannot be read.
    """
    for entry in reversed(
        checkpoint_list.list_checkpoints(Path(logdir) / checkpoint_list.DIRECTORY)
    ):
        with contextlib.suppress(UserError):  # Restoring reports the error.
            return run_record.read(entry.path)
    return None


def check(
    logdir: str | os.PathLike[str],
    environment: Mapping[str, Any],
    now: Mapping[str, Any] | None = None,
    network: Collection[str] = (),
) -> None:
    """Refuses to continue a run of another program, environment or network; see `refusal`.

    Raises:
      UserError: this program must not continue the run.
    """
    if message := refusal(logdir, environment, now, network):
        raise UserError(message)


def refusal(
    logdir: str | os.PathLike[str],
    environment: Mapping[str, Any],
    now: Mapping[str, Any] | None = None,
    network: Collection[str] = (),
) -> str | None:
    """Why this program must not continue the run saved in `logdir`; None if it may.

    A run without a checkpoint starts over, so it is never refused.

    Args:
      logdir: directory of the new run; may be missing.
      environment: the options that define the environment, by name.
      now: all options, by name.
      network: names of those that define the network.
    """
    saved = record(logdir)
    if saved is None:
        return _original(logdir)
    other = differences(saved, {**environment, run_record.PROGRAM: running_program.name()})
    if other:
        weights_fit = not other[0].startswith((_PROGRAM, _AGENT))
        message = f"{logdir} contains a different run: {'; '.join(other)}. {START_OVER}"
        return f"{message} {_start_from(logdir)}" if weights_fit else message
    other = differences(saved, {name: v for name, v in (now or {}).items() if name in network})
    return network_refusal(logdir, other) if other else None


def network_refusal(logdir: str | os.PathLike[str], differing: Collection[str]) -> str:
    """Why a run with another network must not continue the one saved in `logdir`.

    Args:
      logdir: directory of the run.
      differing: the options of the network that differ, each with both values.
    """
    return (
        f"{logdir} contains a run with another network: {'; '.join(differing)}. Even where its "
        "weights fit, this network would compute something else from them. Change the options back "
        f"to continue. {START_OVER} {_start_from(logdir)}"
    )


def changes(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`differences` since a run began, without the options of one process."""
    own = run_record.OWN_OPTIONS
    return differences(saved, {name: value for name, value in now.items() if name not in own})


def _start_from(logdir: str | os.PathLike[str]) -> str:
    return f"To start from its weights: use another --logdir and --init_checkpoint={logdir}."


def _original(logdir: str | os.PathLike[str]) -> str | None:
    """Why a directory with a checkpoint of an original program is refused."""
    try:
        names = sorted(filter(_ORIGINAL.fullmatch, os.listdir(logdir)))
    except OSError:
        return None  # The directory is missing, or unusable, which is reported when it is used.
    if not names:
        return None
    name = names[-1].removesuffix(".index")
    return (
        f"{logdir} contains a checkpoint of an original SEED RL program ({name}), which cannot be "
        f"continued here: its optimizer and counters are stored differently. {START_OVER} To start "
        f"from its weights, if the network has the same variables: use another --logdir and "
        f"--init_checkpoint={Path(logdir) / name}."
    )


def differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The options that differ between a saved run and now, each with both values.

    Args:
      saved: options from a config.json.
      now: options by name; those missing from `saved` are ignored.
    """
    now = json.loads(json.dumps(dict(now), default=str))
    found = []
    if not _same_program(saved.get(run_record.PROGRAM), now.get(run_record.PROGRAM)):
        found.append(_change(_PROGRAM, saved[run_record.PROGRAM], now[run_record.PROGRAM]))
    for name in sorted(now.keys() & saved.keys() - run_record.NOT_OPTIONS):
        if now[name] != saved[name]:
            found.append(_change(f"--{name}", saved[name], now[name]))
    return found


def suspects(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The `differences` that may explain why a checkpoint does not fit the variables."""
    now = {name: value for name, value in now.items() if name not in _NOT_IN_VARIABLES}
    exact = {name: value for name, value in now.items() if not isinstance(value, float)}
    return differences(saved, exact) or differences(saved, now)


def _change(name: str, old: Any, new: Any) -> str:
    return f"{name} was {shown(old)}, is now {shown(new)}"


def _same_program(old: Any, new: Any) -> bool:
    """Modules must have the same name; a script may have been moved."""
    if not old or not new:
        return True
    if "/" not in f"{old}{new}":
        return bool(old == new)
    return running_program.stem(str(old)) == running_program.stem(str(new))
