"""Checks that names and signatures which existing programs use are still there."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from typing import Any

import pytest
import tensorflow as tf


def cases(names: Mapping[str, str]) -> list[Any]:
    """Parameters for a test that calls `check`.

    Args:
      names: what the programs use of each module, one name a line. `Class(...)` is its constructor;
        a base class is named where programs rely on it; `Tuple = a, b` has these fields.
    """
    return [
        pytest.param(
            module, line.strip(), id=f"{module.removeprefix('seed_rl.')}:{line.strip()[:50]}"
        )
        for module, lines in names.items()
        for line in lines.strip().splitlines()
    ]


def check(module_name: str, line: str) -> None:
    """Fails if the module lacks what a line of `cases` says."""
    module = importlib.import_module(module_name)
    if match := re.fullmatch(r"(\w+) = (.*)", line):
        assert list(_resolve(module, match[1])._fields) == match[2].split(", ")
    elif match := re.fullmatch(r"(\w+) < ([\w.]+)", line):
        home, _, base = match[2].rpartition(".")
        home = importlib.import_module({"tf": "tensorflow"}.get(home, home)) if home else module
        assert issubclass(_resolve(module, match[1]), getattr(home, base))
    elif match := re.fullmatch(r"([\w.]+)\((.*)\)", line):
        function = _resolve(module, match[1])
        is_class = inspect.isclass(function)
        function = function.__init__ if is_class else function
        wanted = _wanted_parameters(match[2], module)
        _check_signature(function, wanted, bound=1 if is_class or "." in match[1] else 0)
    else:
        _resolve(module, line)


def _resolve(module: Any, dotted: str) -> Any:
    value = module
    for name in dotted.split("."):
        value = getattr(value, name)
    return value


def _wanted_parameters(text: str, module: Any) -> list[inspect.Parameter]:
    """The parameters of `f(text)`, with defaults of the module's names."""
    space: dict[str, Any] = {**vars(module), "tf": tf}
    exec(f"def wanted({text}): pass", space)
    return list(inspect.signature(space["wanted"]).parameters.values())


def _check_signature(function: Any, wanted: list[inspect.Parameter], bound: int) -> None:
    """A call by the old signature means the same: places, names and defaults."""
    own = list(inspect.signature(function).parameters.values())[bound:]
    named = {parameter.name: parameter for parameter in own}
    variadic = {parameter.kind for parameter in own}
    positional = [p for p in own if p.kind is p.POSITIONAL_OR_KEYWORD]
    place = 0
    for parameter in wanted:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            # Passed on to a function that has its own parameters, or taken by name here.
            continue
        if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            assert positional[place].name == parameter.name
            place += 1
        if parameter.default is not parameter.empty:
            assert named[parameter.name].default == parameter.default, parameter.name
    known = {parameter.name for parameter in wanted}
    for parameter in own:
        if parameter.name not in known and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            passes_on = any(p.kind is p.VAR_POSITIONAL for p in wanted)
            assert passes_on or parameter.default is not parameter.empty, parameter.name
    if any(p.kind is p.VAR_KEYWORD for p in wanted):
        assert inspect.Parameter.VAR_KEYWORD in variadic or len(own) > len(wanted) - 1
