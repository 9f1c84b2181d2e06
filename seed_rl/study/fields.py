"""Reads JSON objects and tables strictly: mistakes are `UserError`s that say what to write."""

from __future__ import annotations

import contextlib
import csv
import difflib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from seed_rl.common.errors import UserError

T = TypeVar("T")
Columns = Mapping[str, Callable[[str], Any]]
"""Columns of a table, and what converts their cells, or raises ValueError."""
Scalar = bool | int | float | str
"""What a flag or a gin binding can be set to."""

_LARGEST = 2**53  # Up to here, floats, with which ranges are computed, represent all whole numbers.


def parse(text: str, source: str) -> dict[str, Any]:
    """The JSON object in `text`.

    Args:
      text: the content of a file.
      source: the file's name, for messages.

    Raises:
      UserError: it is not one JSON object, or a name occurs twice in an object.
    """
    try:
        values = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source} is not valid JSON: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{source} must be a JSON object: {{...}}.")
    return values


def read_table(path: Path, columns: Columns) -> list[dict[str, str]]:
    """The rows of a CSV file, by the names of its columns.

    Args:
      path: of the file.
      columns: those that it must have, with cells that can be converted.

    Raises:
      UserError: it cannot be read, or lacks a column or cell, or one cannot be converted.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"Cannot read {path}: {reason}.") from error
    if rows and (missing := sorted(set(columns) - set(rows[0]))):
        raise UserError(f"{path} lacks the columns {', '.join(missing)}.")
    for number, row in enumerate(rows, 1):
        if None in row or None in row.values():
            raise UserError(f"{path}, row {number}: it has too few or too many cells.")
        for name, convert in columns.items():
            try:
                convert(row[name])
            except ValueError as error:
                raise UserError(f"{path}, row {number}: {name}: {error}.") from None
    return rows


def optional(convert: Callable[[str], T]) -> Callable[[str], T | None]:
    """For cells that may be empty."""
    return lambda cell: convert(cell) if cell else None


def check_names(values: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuses names that are not known.

    Raises:
      UserError: names the first unknown one and the nearest known one.
    """
    known = list(known)
    for name in values:
        if name not in known:
            raise UserError(f"{where} has no {quoted(name)}{nearest(name, known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: "; did you mean ...?" or all that is known."""
    known = list(known)
    if close := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"; did you mean {quoted(close[0])}?"
    return f"; known: {', '.join(map(quoted, known))}."


def take(
    values: Mapping[str, Any], name: str, check: Callable[[Any, str], T], where: str, *default: T
) -> T:
    """The checked value of a name, or the default if it is missing.

    Raises:
      UserError: it is missing and there is no default, or `check` refuses it.
    """
    if name in values:
        return check(values[name], f"{where}: {quoted(name)}")
    if not default:
        raise UserError(f"{where}: {quoted(name)} is missing.")
    return default[0]


def text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise UserError(f"{where} must be a non-empty string, not {quoted(value)}.")
    return value


def truth(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{where} must be true or false, not {quoted(value)}.")
    return value


def whole(value: Any, where: str) -> int:
    """A whole number; 1e6 is one, too."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise UserError(f"{where} must be a whole number, not {quoted(value)}.")
    if abs(value) > _LARGEST:
        raise UserError(f"{where} must be between -2^53 and 2^53, not {quoted(value)}.")
    return int(value)


def count(value: Any, where: str) -> int:
    if (number := whole(value, where)) < 1:
        raise UserError(f"{where} must be at least 1, not {number}.")
    return number


def natural(value: Any, where: str) -> int:
    if (number := whole(value, where)) < 0:
        raise UserError(f"{where} must be at least 0, not {number}.")
    return number


def number(value: Any, where: str) -> float:
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        with contextlib.suppress(OverflowError):  # Integers have no limit in JSON.
            if math.isfinite(real := float(value)):
                return real
    raise UserError(f"{where} must be a number, not {quoted(value)}.")


def scalar(value: Any, where: str) -> Scalar:
    if not isinstance(value, (bool, int, float, str)):
        raise UserError(
            f"{where} must be a number, a string, true or false, not {quoted(value)}. (Write "
            "anything else as a string, as it would follow the = on a command line or in a gin "
            "file.)"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{where} must be finite, not {quoted(value)}.")
    if isinstance(value, str) and not value.isprintable():
        # Command lines cannot hold all others, and a line break would begin another gin binding.
        raise UserError(f"{where} must be of printable characters, not {json.dumps(value)}.")
    return value


def listing(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{where} must be a non-empty list, not {quoted(value)}.")
    return value


def mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{where} must be an object: {{...}}, not {quoted(value)}.")
    return value


def quoted(value: Any) -> str:
    """A value as JSON, for messages."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _unique(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{source}: {quoted(name)} occurs twice in one object; remove one.")
    return dict(pairs)
