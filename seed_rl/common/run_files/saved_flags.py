"""The flags of a program that continues a saved run: options that the user does not set are kept.

Defaults change from version to version, and users forget flags; a run must not change with them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from absl import flags

from seed_rl.common.config import flag_origins, options
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.flag_definitions import (
    PROGRAM,
    default_of,
    replace_default,
    same_value,
    shown,
)
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import run_record, saved_run

_NOT_KEPT = run_record.OWN_OPTIONS | {field.name for field in dataclasses.fields(DeviceConfig)}
"""Options that belong to a process or a machine rather than to a run."""


def adopt_saved_run() -> list[str]:
    """Makes the options of the run saved in --logdir, or replayed, the defaults of the flags.

    Call it when flags are parsed, before anything reads them.

    Returns:
      The options that would otherwise have other values now, as on a command line, to be shown.

    Raises:
      UserError: --logdir holds a run of another program, or cannot be read; or a value is no longer
        valid, or names code.
    """
    if not flags.FLAGS.is_parsed() or "logdir" not in flags.FLAGS:
        return []
    replayed = flag_origins.replayed_record()
    if replayed is not None:
        return adopt(replayed, trusted=True)  # `play` has asked about it.
    logdir = str(flags.FLAGS["logdir"].value)
    saved_run.check(logdir, {})  # Options of another program.
    record = saved_run.record(logdir)
    return adopt(record) if record else []


def adopt(record: Mapping[str, Any], trusted: bool = False) -> list[str]:
    """Makes the options of a record the defaults of the flags.

    An option that is missing in a complete record is newer than the run, which then gets the
    dataclass's default: by our rule, that is the behavior before the option existed.

    Args:
      record: from `run_record.read`; it may be damaged or malicious.
      trusted: whether its values may name code.

    Returns:
      See `adopt_saved_run`.

    Raises:
      UserError: see `adopt_saved_run`.
    """
    changed = []
    for name, now in options.flag_dictionary().items():
        flag, known = flags.FLAGS[name], default_of(flags.FLAGS[name])
        if name in _NOT_KEPT or (known and known.neutral):
            continue
        found, value = _recorded(record, name)
        if not found and known and run_record.ARGUMENTS in record:
            found, value = True, known.library
        if not found or same_value(value, flag.default):
            continue
        typed = flag.present
        if not typed and not trusted:
            _check_code(name, value)
        try:
            replace_default(name, value)
        except (TypeError, ValueError, flags.Error) as error:
            if not typed:
                raise UserError(
                    f"The saved run has --{name}={shown(value)}, which is no longer valid "
                    f"({' '.join(str(error).split())}). Give --{name} a value to continue."
                ) from None
        if not typed:
            changed.append(f"--{name}={shown(value)} (default now: {shown(now)})")
    return changed


def _recorded(record: Mapping[str, Any], name: str) -> tuple[bool, Any]:
    """(whether the record has the flag, its value)."""
    origins = record.get(run_record.ORIGINS)
    if isinstance(origins, Mapping) and origins.get(name) == PROGRAM:
        # The value in effect may be one that the program computes from the flag's, and will again.
        arguments = record.get(run_record.ARGUMENTS)
        given = [str(a) for a in arguments] if isinstance(arguments, list) else []
        texts = [a.partition("=")[2] for a in given if a.startswith(f"--{name}=")]
        flag = flags.FLAGS[name]
        if texts and isinstance(flag, flags.MultiFlag):
            return True, texts
        if texts:
            with contextlib.suppress(TypeError, ValueError):  # Setting it reports the error.
                return True, flag.parser.parse(texts[-1])
            return True, texts[-1]
    return name in record, record.get(name)


def _check_code(name: str, value: Any) -> None:
    """Refuses values that would run code: others may have write access to the logdir."""
    from seed_rl.common.run_files import foreign_code  # Imports gin, which actors' images lack.

    if code := foreign_code.of_option(name, value):
        raise UserError(
            f"The saved run has a --{name} that runs code ({'; '.join(code)}). Give the flag on "
            "the command line to continue."
        )
