"""Environments that no other process can import: lambdas, classes of a notebook, objects.

`seed_rl.train` pickles what creates them to a file, whose path its learner and actors inherit. The
run's record has no code, so its environment must be given again: `seed_rl.load(RUN, env=...)`.
"""

from __future__ import annotations

import collections
import contextlib
import dis
import functools
import hashlib
import os
import random
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from seed_rl.common.errors import UserError

NAME = f"{__name__}:factory"
"""As --env_name."""
_FILE = "SEED_RL_ENVIRONMENT_FILE"
_RANDOM = (np.random.Generator, np.random.RandomState, random.Random)
_EMPTY_CELL = types.CellType()  # Of a variable that has no value yet.


def importable(value: Any) -> str | None:
    """The module:name of a class or function that other processes can import; None for others."""
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    try:
        found = functools.reduce(getattr, name.split("."), sys.modules[module])
    except (KeyError, AttributeError):
        return None
    return f"{module}:{name}" if module != "__main__" and found == value else None


def label(environment: Any) -> str:
    """A word for an environment without a name, for messages."""
    function = getattr(environment, "func", environment)  # Of a functools.partial.
    name = getattr(function, "__name__", None)
    name = name or type(getattr(environment, "unwrapped", environment)).__name__
    return re.sub(r"\W+", "", name) or "environment"


def unique_label(environment: Any) -> str:
    """The label, or an object's Gymnasium id, and a digest for a directory of its own.

    It is the same whenever the same program runs, and another if the environment, or a function or
    value that creates it, differs.
    """
    spec = None if callable(environment) else getattr(environment, "spec", None)
    name = getattr(spec, "id", None)
    name = re.sub(r"[^\w.-]+", "_", name) if isinstance(name, str) else label(environment)
    try:
        text = repr(_content(environment, {}))
    except Exception:  # Too deep, say. The name of a directory must not keep a run from starting.
        text = ""
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _content(value: Any, seen: dict[int, Any]) -> Any:
    """What a value consists of, without addresses, random states, file names and line numbers.

    Pickles would differ from process to process: they note which equal strings are one object.
    """
    inner = functools.partial(_content, seen=seen)
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, (list, tuple, collections.deque)):
        return [*map(inner, value)]
    if isinstance(value, dict):
        return inner([getattr(value, "default_factory", None), *value.items()])
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, map(inner, value)))
    if isinstance(value, types.CodeType):
        return inner([value.co_code, value.co_names, value.co_consts])
    if isinstance(value, types.ModuleType):
        return value.__name__
    if (name := importable(value)) or id(value) in seen:
        return name or "seen"
    seen[id(value)] = value  # Kept, so that no other gets its id.
    if isinstance(value, types.FunctionType):
        read = {n: value.__globals__.get(n) for n in _names_read(value.__code__)}
        cells = [cell for cell in value.__closure__ or () if cell != _EMPTY_CELL]
        closure = [cell.cell_contents for cell in cells]
        return inner([value.__code__, read, closure, value.__defaults__, value.__kwdefaults__])
    if isinstance(value, type):
        own = {n: v for n, v in vars(value).items() if not n.startswith("__") or callable(v)}
        return inner([value.__qualname__, value.__bases__, own])
    if isinstance(value, _RANDOM):
        return type(value).__qualname__
    if isinstance(value, gymnasium.Env):  # Private attributes may be seeds that the system chose.
        public = {n: v for n, v in vars(value).items() if n[:1] != "_"}
        return inner([type(value), value.spec, public])
    try:
        parts = value.__reduce_ex__(2)
    except Exception:  # A class' method or property; a lock, an open file, ...
        parts = [getattr(value, name, None) for name in ("__func__", "fget", "fset")]
    return inner([type(value), parts, getattr(value, "__wrapped__", None)])


def _names_read(code: types.CodeType) -> Iterator[str]:
    """Names of global variables in a function and in those within it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
        elif isinstance(instruction.argval, types.CodeType):
            yield from _names_read(instruction.argval)


@contextlib.contextmanager
def pickled(environment: Any) -> Iterator[dict[str, str]]:
    """Environment variables with which other processes find what creates their environments.

    Args:
      environment: a function that creates one, or one, of which each process gets copies.

    Raises:
      UserError: it cannot be pickled.
    """
    try:
        made = environment
        if not callable(environment):  # Reading a function's parameters must not create one.
            made = functools.partial(_unpickled, cloudpickle.dumps(environment))
        data = cloudpickle.dumps(made)
    except Exception as error:
        raise UserError(
            f"The environment cannot be sent to other processes ({error}). Give a function that "
            "creates it, and everything that it uses, such as lambda: MyEnv()."
        ) from error
    with tempfile.NamedTemporaryFile(prefix="seed_rl_") as file:
        file.write(data)
        file.flush()
        os.fchmod(file.fileno(), 0o1600)  # Cleaners of /tmp leave such files alone.
        yield {_FILE: file.name}


def factory() -> Callable[..., Any]:
    """What creates environments, as another process has passed it to `pickled`.

    Raises:
      UserError: there is none, or this process lacks what it needs.
    """
    if _FILE not in os.environ:
        raise UserError(
            "The environment of this run was given to seed_rl.train in Python, and is not saved. "
            "Give it again there: seed_rl.load(RUN, env=...); to continue training, repeat "
            "seed_rl.train."
        )
    with _told_in_words(), open(os.environ[_FILE], "rb") as file:
        return cloudpickle.load(file)


def _unpickled(data: bytes) -> Any:
    with _told_in_words():
        return cloudpickle.loads(data)


@contextlib.contextmanager
def _told_in_words() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise UserError(
            f"The environment cannot be created in another process ({error}). Modules that it uses "
            "must be installed, or be beside your program or in the working directory."
        ) from error
