"""Gymnasium spaces as nests of array specifications.

The learner derives its tensors from the same specifications, so actor and learner agree on what
crosses the wire: float64 becomes float32, everything else keeps its type. A nest has the structure
of its space: `Dict` becomes a dictionary, `Tuple` a tuple.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from seed_rl.common import nest
from seed_rl.common.errors import UserError

SMALLEST_IMAGE = 36
"""Side in pixels below which the torsos' convolutions have no output. Smaller boxes are treated as
grids or matrices, for dense layers."""


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Shape and type of one array, without batch dimension."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"


def nested(space: spaces.Space[Any]) -> Any:
    """The spaces of all arrays of a space, as a nest with its structure."""
    if isinstance(space, spaces.Dict):
        return {key: nested(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(nested(part) for part in space.spaces)
    return space


def leaf_spaces(space: spaces.Space[Any]) -> list[Any]:
    """The spaces of all arrays of a space, in the order in which nests of them are flattened."""
    return nest.flatten(nested(space))


def specs(space: spaces.Space[Any], name: str = "observation") -> Any:
    """A nest of `ArraySpec` for an observation or action space.

    Args:
      space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of spaces.
      name: its name in messages.

    Raises:
      UserError: the space does not consist of arrays of fixed shape (Text, Graph, ...), has no
        values, or is a Dict with other keys than strings.
    """
    found = _specs(space, name)
    if not any(np.prod(spec.shape) for spec in nest.flatten(found)):
        raise UserError(f"The {name} space {space} is empty: it must have at least one number.")
    return found


def _specs(space: spaces.Space[Any], name: str) -> Any:
    """`specs` of a part, which may be empty."""
    if isinstance(space, spaces.Dict):
        if not all(isinstance(key, str) for key in space.spaces):
            raise UserError(
                f"The keys of the {name} space {space} are not all strings: make them strings."
            )
        return {key: _specs(sub, f"{name}/{key}") for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_specs(sub, f"{name}/{i}") for i, sub in enumerate(space.spaces))
    if not isinstance(
        space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    ):
        raise UserError(
            f"The {name} space {space} does not consist of arrays of fixed shape. Wrap the "
            "environment so that it uses Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple."
        )
    dtype = np.dtype(np.float32 if space.dtype == np.float64 else space.dtype)
    return ArraySpec(tuple(space.shape or ()), dtype, name)


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether a torso suits the space: [height, width, channels], or bytes [height, width]."""
    return isinstance(space, spaces.Box) and has_image_shape(space.shape, space.dtype)


def has_image_shape(shape: Sequence[int], dtype: Any) -> bool:
    """`is_image` of a `Box` of this shape and type."""
    flat = len(shape) == 2 and dtype == "uint8"
    return (len(shape) == 3 or flat) and min(shape[:2]) >= SMALLEST_IMAGE


def describe(space: spaces.Space[Any]) -> str:
    """Describes a space in text that is the same on all machines, for learner and actors."""
    if isinstance(space, spaces.Dict):
        return f"{{{', '.join(f'{key}: {describe(space[key])}' for key in sorted(space.keys()))}}}"
    if isinstance(space, spaces.Tuple):
        return f"({', '.join(map(describe, space.spaces))})"
    if isinstance(space, spaces.Discrete):
        return f"{space.n} choices from {space.start}"
    if isinstance(space, spaces.MultiDiscrete):
        return f"{space.nvec.tolist()} choices from {space.start.tolist()}"
    if isinstance(space, spaces.Box):
        return f"{_specs(space, '')} from {_bounds(space.low)} to {_bounds(space.high)}"
    return str(_specs(space, ""))


def _bounds(values: np.ndarray) -> str:
    """The bounds as text; one number if all are equal."""
    distinct = np.unique(values)
    return f"{distinct[0]:g}" if len(distinct) == 1 else str([f"{v:g}" for v in values.flat])


_TYPES = ("float32", "uint8", "int8", "uint16", "int16", "int32", "int64")
_NUMBER = r"-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf)"
_CHOICES = re.compile(r"(\d+) choices from (-?\d+)|(\[[^\]]*\]) choices from (\[[^\]]*\])")
_ARRAY = re.compile(
    rf"([a-z]+\d*)\[([\d, ]*)\](?: from ({_NUMBER}|\[[^\]]*\]) to ({_NUMBER}|\[[^\]]*\]))?"
)


def parse(text: str) -> spaces.Space[Any]:
    """The space whose description by `describe` is `text`.

    Bounds may be missing: then bytes have all values, and other numbers no bounds.

    Raises:
      ValueError: the text describes no space.
    """
    space, rest = _parse(text.strip())
    if rest:
        raise ValueError(f"expected nothing after the space, not '{rest}'")
    return space


def _parse(text: str) -> tuple[spaces.Space[Any], str]:
    """The space at the beginning of a text, and the rest."""
    if text[:1] == "{":
        parts, rest = _parse_parts(text[1:], "}", named=True)
        return spaces.Dict(parts), rest
    if text[:1] == "(":
        parts, rest = _parse_parts(text[1:], ")", named=False)
        return spaces.Tuple([part for _, part in parts]), rest
    if found := _CHOICES.match(text):
        count, first, counts, firsts = found.groups()
        if count:
            return spaces.Discrete(int(count), start=int(first)), text[found.end() :]
        nvec, start = (np.array(json.loads(numbers), np.int64) for numbers in (counts, firsts))
        return spaces.MultiDiscrete(nvec, start=start), text[found.end() :]
    if found := _ARRAY.match(text):
        name, dimensions, low, high = found.groups()
        if name not in _TYPES:
            raise ValueError(f"there is no type {name}; the types are {', '.join(_TYPES)}")
        dtype = np.dtype(name)
        shape = tuple(int(size) for size in dimensions.split(",") if size.strip())
        return _box(shape, dtype, low, high), text[found.end() :]
    raise ValueError(
        f"cannot read '{text}'; write it as float32[4], float32[6] from -1 to 1, 5 choices from 0, "
        "[3, 2] choices from [0, 0], or {name: ..., name: ...}"
    )


def _parse_parts(
    text: str, end: str, named: bool
) -> tuple[list[tuple[str, spaces.Space[Any]]], str]:
    parts: list[tuple[str, spaces.Space[Any]]] = []
    while not text.startswith(end):
        name, colon, rest = text.partition(": ") if named else ("", ":", text)
        if not colon:
            raise ValueError(f"expected a name and a colon, not '{text}'")
        part, text = _parse(rest)
        parts.append((name, part))
        if not text.startswith((", ", end)):
            raise ValueError(f"expected a comma or {end}, not '{text}'")
        text = text.removeprefix(", ")
    return parts, text[1:]


def _box(
    shape: tuple[int, ...], dtype: np.dtype[Any], low: str | None, high: str | None
) -> spaces.Space[Any]:
    if low is None or high is None:
        if dtype == np.int8:
            return spaces.MultiBinary(list(shape))
        if dtype.kind == "f":
            return spaces.Box(-np.inf, np.inf, shape, dtype.type)
        return spaces.Box(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype.type)
    bounds = []
    for text in (low, high):
        values = np.array([float(value.strip(" '")) for value in text.strip("[]").split(",")])
        bounds.append(np.full(shape, values[0]) if values.size == 1 else values.reshape(shape))
    return spaces.Box(bounds[0].astype(dtype), bounds[1].astype(dtype), shape, dtype.type)


class BatchBuffer:
    """A reused array [k, ...] per leaf of a space, filled row by row."""

    def __init__(self, space_specs: Any, size: int):
        self._structure = space_specs
        self._specs: list[ArraySpec] = nest.flatten(space_specs)
        self._single = isinstance(space_specs, ArraySpec)
        self._arrays = [np.zeros((size, *spec.shape), spec.dtype) for spec in self._specs]
        self.batch = nest.pack_sequence_as(space_specs, list(self._arrays))
        """Nest of <spec.dtype>[k, *spec.shape]; the same arrays at every step."""

    def write(self, row: int, value: Any, owner: str) -> None:
        """Copies `value`, a nest that matches the specifications, into row `row`.

        Raises:
          UserError: structure, shape or type do not match; the message begins with `owner`.
        """
        if self._single:
            self._arrays[0][row] = fitting(self._specs[0], value, owner)
            return
        try:
            fitted = nest.map_structure(lambda spec, leaf: leaf, self._structure, value)
        except (ValueError, KeyError, TypeError):
            raise UserError(
                f"{owner} has a different structure than its space: {type(value).__name__} with "
                f"{_outline(value)}, expected {_outline(self._structure)}."
            ) from None
        for array, spec, leaf in zip(self._arrays, self._specs, nest.flatten(fitted), strict=True):
            array[row] = fitting(spec, leaf, owner)


def converts(array: np.ndarray, dtype: np.dtype[Any]) -> bool:
    """Whether an array may be cast to `dtype`: nothing is rounded to integers or wraps around."""
    return np.can_cast(array.dtype, dtype, "safe") or (
        np.can_cast(array.dtype, dtype, "same_kind")
        and (dtype.kind == "f" or np.array_equal(array.astype(dtype), array))
    )


def fitting(spec: ArraySpec, leaf: Any, owner: str, size: int | None = None) -> np.ndarray:
    """`leaf` as an array [*spec.shape], or with a `size` [size, *spec.shape].

    Raises:
      UserError: shape, type or integers do not match; the message begins with `owner`.
    """
    leaf = np.asarray(leaf)
    shape = spec.shape if size is None else (size, *spec.shape)
    if leaf.shape != shape or not converts(leaf, spec.dtype):
        each = "" if size is None else f" for each of {size} environments"
        raise UserError(
            f"{owner} does not fit its space ({spec.name}): {leaf.dtype.name}"
            f"{list(leaf.shape)}{_range(leaf)}, expected {spec}{each}. Make the environment return "
            "observations of the space it declares."
        )
    return leaf


def _range(leaf: np.ndarray) -> str:
    return f" from {leaf.min()} to {leaf.max()}" if leaf.size and leaf.dtype.kind in "iu" else ""


def _outline(value: Any) -> Any:
    """Types and shapes of a nest's leaves, for messages."""
    return nest.map_structure(
        lambda leaf: (
            str(leaf)
            if isinstance(leaf, ArraySpec)
            else f"{np.asarray(leaf).dtype.name}{list(np.shape(leaf))}"
        ),
        value,
    )


ActionSplitter = Callable[[Any], list[Any]]
"""Turns a nest of actions [k, ...] into k actions of the space."""


def action_splitter(space: spaces.Space[Any], size: int) -> ActionSplitter:
    """Returns a function that checks a batch of `size` actions (`action_checker`) and splits it."""
    check = action_checker(space, size)
    return lambda actions: _rows(space, check(actions))


def _rows(space: spaces.Space[Any], actions: Any) -> list[Any]:
    if isinstance(space, spaces.Discrete):
        # Python numbers, because some environments reject those of NumPy.
        rows: list[Any] = actions.tolist()
        return rows
    if isinstance(space, spaces.Tuple):
        columns = [_rows(sub, a) for sub, a in zip(space.spaces, actions, strict=True)]
        return list(zip(*columns, strict=True))
    if isinstance(space, spaces.Dict):
        values = zip(*(_rows(sub, actions[key]) for key, sub in space.spaces.items()), strict=True)
        return [dict(zip(space.spaces, row, strict=True)) for row in values]
    return list(actions)


def action_checker(space: spaces.Space[Any], size: int) -> Callable[[Any], Any]:
    """Returns a function that checks a batch of `size` actions: a nest of <space.dtype>[k, ...].

    The function raises a UserError if an action is not in the space: the learner was then started
    with another action space.
    """
    checkers = nest.map_structure(lambda leaf: _leaf_checker(leaf, size), nested(space))
    if callable(checkers):
        return checkers

    def check(actions: Any) -> Any:
        try:
            return nest.map_structure(lambda checker, part: checker(part), checkers, actions)
        except (ValueError, TypeError):
            _require(False, space)

    return check


def _leaf_checker(space: spaces.Space[Any], size: int) -> Callable[[Any], np.ndarray]:
    spec = _specs(space, "action")
    shape = (size, *spec.shape)
    dtype = np.dtype(space.dtype)
    low: Any = 0
    end: Any = None
    if isinstance(space, spaces.Discrete):
        low, end = int(space.start), int(space.start + space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        low, end = space.start, space.start + space.nvec
    elif isinstance(space, spaces.MultiBinary):
        end = 2

    def check(actions: Any) -> np.ndarray:
        actions = np.asarray(actions)
        _require(actions.shape == shape and np.can_cast(actions.dtype, dtype, "same_kind"), space)
        if end is not None:
            _require(not ((actions < low) | (actions >= end)).any(), space, actions)
        return actions.astype(dtype, copy=False)

    return check


def _require(fits: Any, space: spaces.Space[Any], actions: Any = None) -> None:
    if not fits:
        got = "" if actions is None else f" (it sent {np.array2string(actions, threshold=8)})"
        raise UserError(
            f"The learner's actions are not in this environment's action space {space}{got}. "
            "Start learner and actors with the same environment options."
        )
