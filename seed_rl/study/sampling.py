"""Draws configurations from a spec.

Each value is a function of the sampling seed, the configuration's number and the choice's name
alone. So the same spec always gives the same configurations, and a spec with more configurations
begins with those of the smaller one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from seed_rl.study.fields import Scalar
from seed_rl.study.spec import GIN_BINDINGS, Choice, Spec, same

_DIGITS = 6  # Significant ones, so that command lines and tables show exactly what is run.


class Configuration(NamedTuple):
    """One sample.

    Attributes:
      number: 0, 1, ...
      values: the value of each choice that exists in it, by name.
    """

    number: int
    values: Mapping[str, Scalar]


def sample(spec: Spec) -> list[Configuration]:
    """All configurations of a study."""
    return [_configuration(spec, number) for number in range(spec.configurations)]


def flags(spec: Spec, configuration: Configuration, seed: int) -> list[str]:
    """The flags of one run, except its logdir, as on a command line."""
    arguments = [f"--seed={seed}", f"--total_environment_frames={spec.frames}"]
    for name, value in spec.flags.items():
        repeated = value if isinstance(value, tuple) else (value,)
        arguments += [f"--{name}={_on_command_line(element)}" for element in repeated]
    bindings = dict(spec.bindings)
    for choice in spec.choices:
        if choice.name not in configuration.values:
            continue
        value = configuration.values[choice.name]
        if choice.gin:
            bindings[choice.gin] = value
        else:
            arguments.append(f"--{choice.flag}={_on_command_line(value)}")
    # Strings are gin expressions: "@GAE()" is a reference, "'tanh'" a string.
    return arguments + [f"--{GIN_BINDINGS}={name} = {value}" for name, value in bindings.items()]


def covering(spec: Spec, configurations: Iterable[Configuration]) -> list[Configuration]:
    """The first configurations with each choice and each listed value that occurs in any.

    If their flags are valid, so are those of all others, as far as values can be judged one by one.
    """
    kinds = {choice.name: choice.kind for choice in spec.choices}
    seen: set[tuple[str, Scalar | None, type | None]] = set()
    chosen = []
    for configuration in configurations:
        new = {
            (name, value, type(value)) if kinds[name] == "values" else (name, None, None)
            for name, value in configuration.values.items()
        }
        if not new <= seen:
            chosen.append(configuration)
        seen |= new
    return chosen


def _configuration(spec: Spec, number: int) -> Configuration:
    values: dict[str, Scalar] = {}
    for choice in spec.choices:
        if _exists(choice, values):
            # Seeded with a string and asked only for `random`, a generator gives the same numbers
            # on every version of Python.
            generator = random.Random(f"{spec.sampling_seed}/{number}/{choice.name}")
            values[choice.name] = _draw(choice, generator.random())
    return Configuration(number, values)


def _exists(choice: Choice, values: Mapping[str, Scalar]) -> bool:
    return all(
        name in values and any(same(values[name], value) for value in wanted)
        for name, wanted in choice.conditions.items()
    )


def _draw(choice: Choice, u: float) -> Scalar:
    """The value at the quantile `u` in [0, 1) of the choice's distribution."""
    if choice.kind == "values":
        return choice.domain[int(u * len(choice.domain))]
    if choice.kind == "integers":
        low, high = int(choice.low), int(choice.high)
        return low + int(u * (high - low + 1))
    return quantile(choice, u)


def quantile(choice: Choice, u: float) -> float:
    """The quantile `u` in [0, 1] of a uniform or log-uniform choice, rounded as samples are."""
    low, high = choice.low, choice.high
    if choice.kind == "log_uniform":
        value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
    else:
        value = low + u * (high - low)
    return min(max(float(f"{value:.{_DIGITS}g}"), low), high)


def _on_command_line(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
