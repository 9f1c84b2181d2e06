"""How a program was started, written beside what it trains, so that it can be started alike again.

No TensorFlow here.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from seed_rl.common.config import options
from seed_rl.common.errors import UserError
from seed_rl.common.system import files, running_program

FILE = "config.json"
PROGRAM = "program"
ARGUMENTS = "arguments"

OWN_OPTIONS = frozenset(
    ("run_mode", "task", "server_address", "logdir", "job-dir", "auth_token_file")
    + ("tls_ca", "tls_certificate", "tls_key", PROGRAM, ARGUMENTS)
)
"""What each process has for itself: not to be sent to others, nor a way to compare runs."""


def describe(values: Mapping[str, Any]) -> dict[str, Any]:
    """All there is to know of a run, for config.json.

    Args:
      values: the options in effect; they win over the flags of the same name.

    Returns:
      Flags and options by name; and, if the program has parsed its flags, `program`, a module or
      the path of a script, and `arguments`, its flags as on a command line.
    """
    record = {**options.flag_dictionary(), **values}
    name = running_program.name()
    if flags.FLAGS.is_parsed() and name:
        record[PROGRAM] = name
        record[ARGUMENTS] = _arguments()
    return record


def write(directory: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Writes `directory`/config.json.

    Raises:
      OSError: it cannot be written.
    """
    text = json.dumps(record, indent=1, sort_keys=True, default=str)
    files.write_atomically(os.path.join(directory, FILE), text + "\n")


def read(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """What `write` wrote.

    Raises:
      UserError: there is none, or it cannot be read.
    """
    path = os.path.join(directory, FILE)
    try:
        with open(path, encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise UserError(f"Cannot read the options of the run from {path}: {error}") from error


def start_again(record: Mapping[str, Any], overrides: Sequence[str]) -> None:
    """Runs the program of a record in this process, as `python -m` would, and returns at its end.

    Args:
      record: from `describe`.
      overrides: further arguments, which win over those of the record.

    Raises:
      UserError: the record does not tell the program, or it cannot be found.
      SystemExit: the program ended with an error.
    """
    if PROGRAM not in record:
        raise UserError("The run was not started by a program with flags: nobody knows how again.")
    name = str(record[PROGRAM])
    given = record.get(ARGUMENTS)
    if not isinstance(given, list):
        raise UserError(f"The record of the run is damaged: its {ARGUMENTS} are no list.")
    if name.endswith(".py") and not os.path.exists(name):
        raise UserError(f"Cannot start {name}, which trained this run: it is gone.")
    arguments, sys.argv = sys.argv, [name, *map(str, given), *overrides]
    try:
        if name.endswith(".py"):
            sys.path.insert(0, os.path.dirname(name))
            runpy.run_path(name, run_name="__main__")
        else:
            sys.path.insert(0, os.getcwd())
            runpy.run_module(name, run_name="__main__", alter_sys=True)
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


def _arguments() -> list[str]:
    arguments = []
    for name in sorted(options.flag_dictionary()):
        flag = flags.FLAGS[name]
        # A flag that may be given several times is one line for each.
        lines = flag.serialize()
        arguments += lines.split("\n") if isinstance(flag, flags.MultiFlag) else [lines]
    return [argument for argument in arguments if argument]
