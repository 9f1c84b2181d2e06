"""Which layer sets an option: dataclass, preset, program, flag file or command line.

Flag files stand for their lines, in place, so whichever comes later wins. absl does not record
where a value came from, so `read` does. If a program lets absl read the command line, it is read
again here.
"""

from __future__ import annotations

import contextlib
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
from seed_rl.common.errors import UserError
from seed_rl.common.system import flag_files

COMMAND_LINE = "command line"
PRESET = " preset"

ARGUMENTS = "arguments"
ORIGINS = "origins"
"""Entries of a run's record: its flags as on a command line, and their `origins`."""

_replayed: Mapping[str, Any] | None = None
_noted: tuple[list[str], list[tuple[str, str]]] = ([], [])


@contextlib.contextmanager
def replaying(record: Mapping[str, Any]) -> Iterator[None]:
    """Marks a record's arguments, from `sys.argv[1]` on, as those of a saved run.

    Args:
      record: of the saved run; its `ORIGINS` may be missing or damaged.
    """
    global _replayed
    before, _replayed = _replayed, record
    try:
        yield
    finally:
        _replayed = before


def replayed_record() -> Mapping[str, Any] | None:
    """The record of the run that is replayed, if one is."""
    return _replayed


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


def _origin(flag: flags.Flag[Any], given: Mapping[str, str]) -> str:
    if flag.present:
        return given.get(flag.name, COMMAND_LINE)
    known = default_of(flag)
    if known is None or not same_value(flag.value, known.effective):
        return PROGRAM  # Defined by its code, or set there after parsing.
    return known.origin


def read(arguments: Sequence[str]) -> list[str]:
    """The arguments of `sys.argv` with our names, and flag files replaced; notes their sources.

    Raises:
      UserError: a flag file cannot be read.
    """
    global _noted
    found = list(_sources(arguments))
    ours = familiar_names.translated([argument for argument, _ in found], set(flags.FLAGS))
    _noted = list(arguments), list(zip(ours, (source for _, source in found), strict=True))
    return ours


def _sources(arguments: Sequence[str], again: bool = False) -> Iterator[tuple[str, str]]:
    number = len(_replayed[ARGUMENTS]) if _replayed else 0
    yield from flag_files.expanded(arguments[:number], SAVED_RUN, again=again)
    yield from flag_files.expanded(arguments[number:], COMMAND_LINE, again=again)


def _given(arguments: Sequence[str]) -> dict[str, str]:
    """The origin of each flag's last value."""
    recorded = _replayed.get(ORIGINS) if _replayed else None
    noted, stream = _noted
    given: dict[str, str] = {}
    with contextlib.suppress(UserError):  # A file has changed since absl read it.
        read_now = iter(stream) if noted == arguments else _sources(arguments, again=True)
        for name, source in _named(read_now):
            if source == SAVED_RUN and isinstance(recorded, Mapping):
                source = str(recorded.get(name, DATACLASS))
            given[name] = source
    return given


def _named(stream: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The names of the flags that arguments set, with their sources."""
    for argument, source in stream:
        if argument == "--":
            return
        if not argument.startswith("-") or argument == "-":
            if flags.FLAGS.is_gnu_getopt():
                continue
            return  # By default, absl ignores flags after a positional argument.
        name, equals, _ = argument.lstrip("-").partition("=")
        flag = flags.FLAGS[name] if name in flags.FLAGS else None
        if name == "undefok" or (flag is not None and not flag.boolean):
            if not equals:
                next(stream, None)  # Its value.
        elif flag is None and name.startswith("no"):
            name = name.removeprefix("no")
        name = flag.name if flag is not None else name  # It may have been a short name.
        yield ALIASES.get(name, name), source
