"""What a run's record would execute that this machine's user may never have seen.

`config.json` names a program and its flags. Whoever wrote the file chose them, and a logdir may
come from anyone. This is no sandbox: an installed program can do much with the right flags. It
keeps files that came with a logdir, or were left somewhere, from being run unnoticed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from seed_rl.common.run_files import run_record

_PACKAGE = Path(__file__).resolve().parents[2]
_OWN = (_PACKAGE, *(_PACKAGE.parent / name for name in ("examples", "benchmarks", "tests")))
_SITE = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("purelib", "platlib"))
_STANDARD = frozenset(sys.stdlib_module_names)
_IMPORT = re.compile(r"^\s*(?:import|from|include)\s", re.MULTILINE)


def find(record: Mapping[str, Any]) -> list[str]:
    """The code named by a record that is neither installed as a package nor part of SEED RL.

    Args:
      record: from `run_record.read`; it may be damaged or malicious.

    Returns:
      A description of each, with its place, for the user to judge: the program, modules in
      values of the form module:name, gin files, and gin bindings that import something.
    """
    program = str(record.get(run_record.PROGRAM, ""))
    found = _foreign_script(program) if program.endswith(".py") else _foreign_module(program)
    arguments = record.get(run_record.ARGUMENTS)
    for argument in arguments if isinstance(arguments, list) else ():
        found += _in_value(str(argument).partition("=")[2])
        if re.match("-*flagfile", str(argument)):  # No program records it.
            found.append(str(argument))
    return list(dict.fromkeys(found))


def _in_value(value: str) -> list[str]:
    if _IMPORT.search(value):
        return [value.strip()]
    found = []
    for part in value.split(","):
        module, colon, _ = part.strip().partition(":")
        if colon:
            found += _foreign_module(module)
        elif part.endswith(".gin"):
            found += _foreign_script(part, _PACKAGE.parent)
    return found


def _foreign_script(name: str, folder: Path | None = None) -> list[str]:
    """Of a file: its real path, unless it is SEED RL's or installed. Missing files are harmless."""
    for path in (Path(name), *((folder / name,) if folder else ())):
        if path.exists():
            place = path.resolve()
            return [] if _is_below(place, (*_OWN, *_SITE)) else [str(place)]
    return []


def _foreign_module(name: str) -> list[str]:
    """Of a module: its name and place, unless it is SEED RL's or installed; nothing is imported."""
    top = name.partition(".")[0]
    if not top.isidentifier():
        return []
    here = _places(top, [os.getcwd(), *sys.path])  # As `python -m` finds it.
    if not here or all(_is_below(place, _OWN) for place in here):
        return []
    if top in _STANDARD:  # Not made to be run with a stranger's arguments: `timeit` runs them.
        return [f"{name} of Python's standard library"]
    elsewhere = [entry for entry in sys.path if os.path.realpath(entry) != os.path.realpath(".")]
    if here == _places(top, elsewhere):
        return []  # Installed, or on a path that the user has set.
    return [f"{name} in {', '.join(map(str, here))}"]


def _places(module: str, path: list[str]) -> list[Path]:
    """The files or folders of a top-level module, without importing it."""
    before = sys.path
    sys.path = path
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # ValueError: it is loaded, and has no spec (`__main__`).
        return []
    finally:
        sys.path = before
    if spec is None:
        return []
    folders = list(spec.submodule_search_locations or ())
    if not folders and spec.origin is not None:
        folders = [spec.origin]
    return [Path(folder).resolve() for folder in folders]


def _is_below(place: Path, folders: Iterable[Path]) -> bool:
    return any(place.is_relative_to(folder) for folder in folders)
