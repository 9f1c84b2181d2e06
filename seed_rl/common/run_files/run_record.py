"""config.json: the options of a run and how its program was started, so that it can be replayed."""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from absl import flags, logging

from seed_rl.common.config import flag_origins, options
from seed_rl.common.config.flag_definitions import shown
from seed_rl.common.config.flag_origins import ARGUMENTS as ARGUMENTS
from seed_rl.common.config.flag_origins import ORIGINS as ORIGINS
from seed_rl.common.errors import UserError
from seed_rl.common.system import files, running_program

FILE = "config.json"
PROGRAM = "program"
GIN = "gin"
DEVICES = "devices"

NOT_OPTIONS = frozenset((PROGRAM, ARGUMENTS, ORIGINS, GIN, DEVICES))
"""Entries of a record that are not options."""

OWN_OPTIONS = frozenset(
    ("run_mode", "task", "play_request", "server_address", "logdir", "job-dir", "auth_token_file")
    + (
        "tls_ca",
        "tls_cert",
        "tls_certificate",
        "tls_key",
        "insecure",
        "stopped_exit_code",
        "learner_addresses",
        "learner_index",
        *NOT_OPTIONS,
    )
)
"""Entries that belong to one process: never sent to others, and ignored when runs are compared."""

_LONGEST_VALUE = 60  # Characters in the table of options.


def describe(values: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a run, for config.json.

    Args:
      values: the options in effect, which win over the flags of the same name.

    Returns:
      Flags and options by name. If the program has parsed its flags, also `program`, a module or
      the path of a script; `arguments`, its flags as on a command line; and `origins`, the sources
      of the options that differ from the dataclass's default, by name (see `flag_origins`). The
      on-policy agent adds `gin`, the values of all parameters of its parts, by name.
    """
    record = {**options.flag_dictionary(), **values}
    name = running_program.name()
    if flags.FLAGS.is_parsed() and name:
        origins = flag_origins.origins(record)
        record |= {PROGRAM: name, ARGUMENTS: _arguments(), ORIGINS: origins}
    return record


def log_options(record: Mapping[str, Any]) -> None:
    """Logs the options that differ from the dataclass's default, and where they come from."""
    rows = [
        (f"--{name}", shown(record.get(name)), origin)
        for name, origin in sorted(record.get(ORIGINS, {}).items())
        if name not in OWN_OPTIONS
    ]
    if not rows:
        return
    rows = [(name, _clipped(value), origin) for name, value, origin in rows]
    names, values = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = [f"  {name:{names}}  {value:{values}}  {origin}" for name, value, origin in rows]
    logging.info("Options that differ from the library's defaults:\n%s", "\n".join(lines))


def write(directory: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Writes `directory`/config.json.

    Raises:
      OSError: it cannot be written.
    """
    text = json.dumps(record, indent=1, sort_keys=True, default=str)
    files.write_atomically(os.path.join(directory, FILE), text + "\n")


def read(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """The record that `write` wrote.

    Raises:
      UserError: it is missing or cannot be read.
    """
    path = os.path.join(directory, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except FileNotFoundError:
        raise UserError(
            f"There is no run in {directory}: it has no {FILE}. Give the directory that the "
            f"run was started with, its --logdir{_runs_below(directory)}."
        ) from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"Cannot read the options of the run from {path}: {error}") from error


def _runs_below(directory: str | os.PathLike[str]) -> str:
    """The runs in a directory, to be appended to a message; "" if there are none."""
    runs = sorted(str(file.parent) for file in Path(directory).glob(f"*/{FILE}"))
    more = ", ..." if len(runs) > 5 else ""
    return f", such as {', '.join(runs[:5])}{more}" if runs else ""


def start_again(record: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Runs the program of a record in this process, as `python -m` would, until it exits.

    Modules are looked up on `sys.path` as it is.

    Args:
      record: from `describe`.
      overrides: further arguments, which win over those of the record.

    Raises:
      UserError: the record does not name a program, has flags that no run records, or the program
        cannot be found.
      SystemExit: the program exited with an error.
    """
    if PROGRAM not in record:
        raise UserError(
            "config.json does not record the start command of this run: it was not started by a "
            "program with flags. Load its policy with seed_rl.experiment.load_policy."
        )
    name = str(record[PROGRAM])
    given = record.get(ARGUMENTS)
    if not isinstance(given, list):
        raise UserError(f"config.json of this run is damaged: its {ARGUMENTS} are not a list.")
    # Anything else could make the program ignore what follows, the overrides included.
    if not all(str(argument).strip("-") and str(argument).startswith("--") for argument in given):
        raise UserError(f"config.json of this run is damaged: its {ARGUMENTS} are not all flags.")
    _refuse_library_flags(given)
    if name.endswith(".py") and not os.path.exists(name):
        raise UserError(f"Cannot start {name}, which trained this run: the file no longer exists.")
    arguments, sys.argv = sys.argv, [name, *map(str, given), *overrides]
    try:
        with flag_origins.replaying(record):
            _run(name)
    except ImportError as error:
        raise UserError(
            f"Cannot start {name}, which trained this run ({error}). Run this where it can be "
            "imported, for instance in the same directory."
        ) from error
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = arguments


def _run(name: str) -> None:
    if name.endswith(".py"):
        name = os.path.realpath(name)  # As Python does: beside a link may be anything.
        sys.path.insert(0, os.path.dirname(name))
        runpy.run_path(name, run_name="__main__")
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)


def _refuse_library_flags(arguments: Sequence[Any]) -> None:
    """Flags of absl itself write files, read further flags, or start a debugger."""
    names = {str(argument).lstrip("-").partition("=")[0] for argument in arguments}
    names |= {name.removeprefix("no") for name in names}
    if refused := sorted(names & options.library_flags()):
        raise UserError(
            f"config.json of this run is damaged: no run records --{' or --'.join(refused)}."
        )


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def _arguments() -> list[str]:
    arguments = []
    for name in sorted(options.flag_dictionary()):
        flag = flags.FLAGS[name]
        serializer: Any = flag.serializer
        if serializer is None and not flag.boolean:
            continue  # Values of this flag cannot be written as text.
        if isinstance(flag, flags.MultiFlag):  # Serializes to lines; values may have several.
            values = flag.value or ()
            arguments += [f"--{name}={serializer.serialize(value)}" for value in values]
        else:
            arguments.append(flag.serialize())
    return [argument for argument in arguments if argument]
