"""Finds code outside of SEED RL that a run's record would execute.

`config.json` names a program and its flags. A logdir, and so this file, may come from anyone. Only
SEED RL's own programs count as known; `_CODE` lists those of their flags that name code or files
with code, whatever their values look like. This is not a sandbox: it makes sure that the user is
asked before foreign code runs.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shlex
import tokenize
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium
from absl import flags
from gin import config_parser

from seed_rl.common.run_files import run_record
from seed_rl.common.system import shipped

_PACKAGE = shipped.LAYOUT / "seed_rl"
_EXAMPLES = shipped.LAYOUT / "examples"
_PROGRAMS = re.compile(r"seed_rl\.\w+\.\w+_main")
_ENVIRONMENTS = "seed_rl.testing.envs"
OF_THE_CALLER = "seed_rl.gym.from_python:factory"  # From the user, not the record.


def find(record: Mapping[str, Any]) -> list[str]:
    """The code named by a record that is not part of SEED RL.

    Args:
      record: from `run_record.read`; it may be damaged or malicious.

    Returns:
      A printable description of each, for the user to judge: the program with its arguments,
      environments and wrappers of the form module:callable, gin files, what gin configs import, and
      folders of engines.
    """
    given = record.get(run_record.ARGUMENTS)
    arguments = [str(argument) for argument in given] if isinstance(given, list) else []
    found = (
        _program(str(record[run_record.PROGRAM]), arguments) if run_record.PROGRAM in record else []
    )
    found += _of_flags(arguments)
    for name in _CODE:  # Its other entries become the defaults of the program's flags.
        found += of_option(name, record.get(name))
    return list(dict.fromkeys(map(_printable, found)))


def of_option(name: str, value: Any) -> list[str]:
    """The foreign code in the value of an option in a record, as in `find`."""
    if name not in _CODE or value is None:
        return []
    values = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(one, str) for one in values):
        return [_printable(f"--{name}={value}")]  # A flag might take it apart in another way.
    return list(map(_printable, _of_flags([f"--{name}={one}" for one in values])))


def _of_flags(arguments: list[str]) -> list[str]:
    found, bindings = [], []
    for argument in arguments:
        name, equals, value = argument.lstrip("-").partition("=")
        if name == "gin_bindings":
            bindings.append(value)
        if name in _CODE:  # Without a value here, the next argument is the value.
            found += _CODE[name](value) if equals else [argument]
    return found + _gin("\n".join(f"{binding}\n" for binding in bindings), set())


def _program(name: str, arguments: list[str]) -> list[str]:
    if _PROGRAMS.fullmatch(name):
        return []
    place: Path | str = name
    if name.endswith(".py"):
        if not os.path.exists(name):
            return []  # Nothing can run; starting the program reports that.
        place = Path(name).resolve()
    elif name.partition(".")[0] == _EXAMPLES.name:
        place = _place_of_examples() / f"{name.partition('.')[2]}.py"
    if isinstance(place, Path) and place.parent == _EXAMPLES:
        return []
    return [shlex.join([str(place), *arguments])]


def _place_of_examples() -> Path:
    spec = importlib.util.find_spec(_EXAMPLES.name)
    return Path(spec.origin).resolve().parent if spec and spec.origin else Path(_EXAMPLES.name)


def _environment(name: str) -> list[str]:
    """An environment or wrapper. Registered ones are known: only a colon imports something."""
    module, colon, attribute = name.partition(":")
    if not colon:
        return []
    if name == OF_THE_CALLER:
        return []
    if module == _ENVIRONMENTS:
        defined = getattr(importlib.import_module(module), attribute, None)
        if getattr(defined, "__module__", "") == module or attribute in gymnasium.registry:
            return []
    return [name]


def _wrappers(value: str) -> list[str]:
    try:
        names = flags.ListParser().parse(value)
    except ValueError:
        return [value]
    return [found for name in names for found in _environment(name)]


def _gin_file(name: str) -> list[str]:
    """A gin file as `gin_config.load` finds it."""
    return _gin_at(os.path.expanduser(name), set())


def _gin_at(name: str, seen: set[Path]) -> list[str]:
    """Of a gin file: its real path if it is not SEED RL's, and what it imports and includes."""
    try:
        # As gin looks for included files: first in the working directory, without expanding ~.
        found = next((p for p in (Path(name), shipped.LAYOUT / name) if p.is_file()), None)
        if found is None or (path := found.resolve()) in seen:
            return []  # Loading it reports if there is none.
        seen.add(path)
        text = path.read_text()
    except (OSError, UnicodeDecodeError):
        return [name]
    foreign = [] if path.is_relative_to(_PACKAGE) else [str(path)]
    return [*foreign, *_gin(text, seen)]


def _gin(text: str, seen: set[Path]) -> list[str]:
    """What a gin config imports and includes, as far as gin can read it."""
    found = []
    try:
        for statement in config_parser.ConfigParser(text, _Values()):
            if isinstance(statement, config_parser.IncludeStatement):
                found += _gin_at(statement.filename, seen)
            elif isinstance(statement, config_parser.ImportStatement):
                if not f"{statement.module}.".startswith("seed_rl."):
                    found.append(statement.format())
    except (SyntaxError, tokenize.TokenError, RecursionError, ValueError) as error:
        found.append(f"a gin config that cannot be parsed ({error!r})")
    return found


class _Values(config_parser.ParserDelegate):
    """Values do not matter here."""

    def configurable_reference(self, scoped_configurable_name: str, evaluate: bool) -> None:
        pass

    def macro(self, macro_name: str) -> None:
        pass


def _levels(value: str) -> list[str]:
    """DeepMind Lab runs a level's script, which a path could take from anywhere."""
    paths = [name for name in value.split(",") if "." in name or name.strip().startswith("/")]
    return [f"--game={value}"] if paths else []


_CODE = {
    "env_name": _environment,
    "env": _environment,
    "env_wrappers": _wrappers,
    "game": _levels,
    "gin_bindings": lambda value: [],  # Together, above: gin reads them as one text.
    "gin_config": _gin_file,
    # DeepMind Lab runs what is in there.
    "homepath": lambda value: [f"--homepath={value}"] if value else [],
    "level_cache_dir": lambda value: [f"--level_cache_dir={value}"] if value else [],
}
"""Flags that name code, with aliases, and what is foreign in their values."""


def _printable(text: str) -> str:
    """Without characters that move the terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
