"""Parsers of numbers on the command line."""

from __future__ import annotations

import decimal
import math
import re
from typing import Any

from absl import flags

# Integral powers of up to three digits: larger ones would take long to compute.
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE]\+?\d{1,3}")


class WholeNumberParser(flags.IntegerParser):
    """Also accepts 1e6 and 1_000_000."""

    def convert(self, argument: Any) -> int:
        try:
            return super().convert(argument)
        except ValueError:
            number = decimal.Decimal(argument) if _NUMBER.fullmatch(argument) else None
            if number is None or number != number.to_integral_value():
                raise ValueError("a whole number is needed, such as 1000000 or 1e6") from None
            return int(number)


class FiniteParser(flags.FloatParser):
    """Refuses NaN, which passes all bounds, and infinity."""

    def convert(self, argument: Any) -> float:
        number = super().convert(argument)
        if not math.isfinite(number):
            raise ValueError("a finite number is needed")
        return number


class NumbersParser(flags.ArgumentParser):
    """Comma-separated numbers.

    Args:
      element: parser of one number.
    """

    def __init__(self, element: Any):
        self._element = element
        self.syntactic_help = "comma-separated numbers"

    def parse(self, argument: Any) -> list[Any]:
        if isinstance(argument, (list, tuple)):
            return list(argument)
        return [self._element.parse(part) for part in argument.split(",") if part]
