"""Which layer sets an option: dataclass, preset, program, flag file or command line.

absl replaces `--flagfile=PATH` with the lines of the file, in place, so whichever comes later wins,
and does not record where a value came from. So the command line is read again here, in the same
order.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from seed_rl.common.config import familiar_names
from seed_rl.common.config.flag_definitions import (
    ALIASES,
    DATACLASS,
    PROGRAM,
    SAVED_RUN,
    default_of,
    same_value,
)

COMMAND_LINE = "command line"
PRESET = " preset"

_replayed: tuple[int, Mapping[str, str] | None] = (0, None)
_record: Mapping[str, Any] | None = None


@contextlib.contextmanager
def replayed_arguments(
    number: int, origins: Mapping[str, str] | None, record: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Marks the first arguments of `sys.argv` as those of a saved run, not of this command line.

    Args:
      number: how many, from `sys.argv[1]` on.
      origins: of the saved run, from `origins`; None if unknown.
      record: of the saved run, for `replayed_record`.
    """
    global _replayed, _record
    before, _replayed, _record = (_replayed, _record), (number, origins), record
    try:
        yield
    finally:
        _replayed, _record = before


def replayed_record() -> Mapping[str, Any] | None:
    """The record of the run that is replayed, if one is."""
    return _record


def origin(name: str) -> str:
    """The layer that sets the value of a flag: "dataclass", "NAME preset", "program", "flag file
    PATH", "command line" or, when a saved run that did not record it is replayed, "saved run".

    Flags must be parsed.
    """
    return _origin(flags.FLAGS[ALIASES.get(name, name)], _given(sys.argv[1:]))


def is_chosen(name: str) -> bool:
    """Whether the user or the program, now or in the run that continues, has set a flag.

    False for values that a dataclass or preset sets or a replayed run computed, and in a library.
    """
    return _is_parsed(name) and not _is_computed(name) and not _is_preset(name)


def may_be_adapted(name: str) -> bool:
    """Whether a program's flag has a value that was not chosen to fit the other options.

    True for values of presets, including those of a saved run; False in a library.
    """
    if not _is_parsed(name):
        return False
    return _is_preset(name) or _is_computed(name) or origin(name) == SAVED_RUN


def _is_parsed(name: str) -> bool:
    return name in flags.FLAGS and flags.FLAGS.is_parsed()


def _is_preset(name: str) -> bool:
    return origin(name) == DATACLASS or origin(name).endswith(PRESET)


def _is_computed(name: str) -> bool:
    """Whether the value in effect in a replayed run was not that of its flag."""
    return origin(name) == PROGRAM and bool(flags.FLAGS[name].present)


def origins(values: Mapping[str, Any]) -> dict[str, str]:
    """The origins of the options that differ from the dataclass's default, or a saved run sets.

    Flags must be parsed. Flags that the program defines with absl are compared with their own
    defaults.

    Args:
      values: options in effect, by name. If one differs from its flag, the program replaced it;
        those without a flag are ignored.
    """
    given = _given(sys.argv[1:])
    changed = {}
    for name in values.keys() & set(flags.FLAGS):
        flag = flags.FLAGS[name]
        known = default_of(flag)
        library = known.library if known else flag.default
        if not same_value(values[name], library) or (known and known.origin == SAVED_RUN):
            kept = same_value(values[name], flag.value)
            changed[name] = _origin(flag, given) if kept else PROGRAM
    return changed


def _origin(flag: flags.Flag[Any], given: Mapping[str | None, str]) -> str:
    if flag.present:
        return given.get(flag.name) or given.get(None, COMMAND_LINE)
    known = default_of(flag)
    if known is None or not same_value(flag.value, known.effective):
        return PROGRAM  # Defined by its code, or set there after parsing.
    return known.origin


def _given(arguments: Sequence[str]) -> dict[str | None, str]:
    """The origin of each flag's last value; under None, a flag file that cannot be read again."""
    number, recorded = _replayed
    stream = itertools.chain(
        _expanded(arguments[:number], SAVED_RUN), _expanded(arguments[number:], COMMAND_LINE)
    )
    given: dict[str | None, str] = {}
    for name, source in _named(stream):
        if source == SAVED_RUN and recorded is not None:
            source = recorded.get(str(name), DATACLASS)
        given[name] = source
    return given


def _named(stream: Iterator[tuple[str | None, str]]) -> Iterator[tuple[str | None, str]]:
    """The names of the flags that arguments set, with their sources."""
    known = set(flags.FLAGS)
    for argument, source in stream:
        if argument is None:
            yield None, source
            continue
        if argument == "--":
            return
        if not argument.startswith("-") or argument == "-":
            if flags.FLAGS.is_gnu_getopt():
                continue
            return  # By default, absl ignores flags after a positional argument.
        name, equals, _ = argument.lstrip("-").partition("=")
        name = familiar_names.ours(name, known)
        flag = flags.FLAGS[name] if name in flags.FLAGS else None
        if name == "undefok" or (flag is not None and not flag.boolean):
            if not equals:
                next(stream, None)  # Its value.
        elif flag is None and name.startswith("no"):
            name = name.removeprefix("no")
        name = flag.name if flag is not None else name  # It may have been a short name.
        yield ALIASES.get(name, name), source


def _expanded(
    arguments: Sequence[str], source: str, open_files: tuple[str, ...] = ()
) -> Iterator[tuple[str | None, str]]:
    """Arguments and their sources, with the contents of flag files in place of their names.

    For a flag file that cannot be read again, such as a pipe, the argument is None.
    """
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, path = argument.partition("=")
        if name not in ("--flagfile", "-flagfile"):
            yield argument, source
            continue
        path = os.path.expanduser((path if equals else next(remaining, "")).strip())
        if not path or path in open_files:
            continue  # absl ignores circular includes, too.
        lines = _lines(path)
        if lines is None:
            yield None, f"flag file {path}"
        else:
            yield from _expanded(lines, f"flag file {path}", (*open_files, path))


def _lines(path: str) -> list[str] | None:
    """The arguments in a flag file; None if it cannot be read again."""
    if not os.path.isfile(path):
        return None  # Opening a pipe again would block.
    try:
        with open(path) as file:
            lines = file.readlines()
    except (OSError, ValueError):
        return None  # It has changed since absl read it.
    return [line.strip() for line in lines if line.strip() and not line.startswith(("#", "//"))]
