"""Configurations: drawn from a spec through a trial of Optuna, and turned into flags."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from seed_rl.common.config.flag_definitions import shown
from seed_rl.study.fields import Scalar
from seed_rl.study.spec import GIN_BINDINGS, Choice, Spec, exists

if TYPE_CHECKING:
    import optuna

_DIGITS = 6  # Significant digits, so that command lines and tables show exactly what is run.


class Configuration(NamedTuple):
    """One sample.

    Attributes:
      number: 0, 1, ...
      values: the values of the choices that exist in it, by name.
      pruned: whether its runs were stopped because others did better.
    """

    number: int
    values: Mapping[str, Scalar]
    pruned: bool = False

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


def draw(spec: Spec, trial: optuna.trial.BaseTrial) -> dict[str, Scalar]:
    """The values of a trial, in the order of the choices; values that it already has are kept."""
    values: dict[str, Scalar] = {}
    for choice in spec.choices:
        if exists(choice, values):
            values[choice.name] = _suggest(choice, trial)
    return values


def label(value: Scalar) -> str:
    """A listed value as Optuna knows it; unlabelled, it would take 1, 1.0 and true for equal."""
    return json.dumps(value)


def flags(spec: Spec, configuration: Configuration, seed: int) -> list[str]:
    """The flags of one run, except its logdir, as on a command line."""
    arguments = []
    for name, value in spec.flags.items():
        repeated = value if isinstance(value, tuple) else (value,)
        arguments += [f"--{name}={shown(element)}" for element in repeated]
    bindings = dict(spec.bindings)
    for choice in spec.choices:
        if choice.name not in configuration.values:
            continue
        value = configuration.values[choice.name]
        if choice.gin:
            bindings[choice.gin] = value
        else:
            arguments.append(f"--{choice.flag}={shown(value)}")
    # Last, since a flag file among them may have others.
    arguments += [f"--total_environment_frames={spec.frames}", f"--seed={seed}"]
    # Strings are gin expressions: "@GAE()" is a reference, "'tanh'" a string.
    return arguments + [f"--{GIN_BINDINGS}={name} = {value}" for name, value in bindings.items()]


def covering(spec: Spec, configurations: Iterable[Configuration]) -> list[Configuration]:
    """The configurations in which a choice, or a listed value, occurs for the first time.

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


def _suggest(choice: Choice, trial: optuna.trial.BaseTrial) -> Scalar:
    if choice.kind == "values":
        value: Scalar = json.loads(
            trial.suggest_categorical(choice.name, [label(value) for value in choice.domain])
        )
        return value
    if choice.kind == "integers":
        return trial.suggest_int(choice.name, int(choice.low), int(choice.high))
    log = choice.kind == "log_uniform"
    return _rounded(choice, trial.suggest_float(choice.name, choice.low, choice.high, log=log))


def _rounded(choice: Choice, value: float) -> float:
    return min(max(float(f"{value:.{_DIGITS}g}"), choice.low), choice.high)
