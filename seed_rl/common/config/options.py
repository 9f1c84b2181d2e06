"""Typed options: declared in dataclasses, set by flags, read as objects.

A configuration is a frozen dataclass whose fields are made by `option`; its base `Checked` checks
values as flags are checked. Library code takes such objects; only the `*_main.py` programs turn
them into flags (`define_flags`) and read the flags back (`from_flags`), so each option, its default
and its help are written once.

    @dataclasses.dataclass(frozen=True)
    class VTraceConfig(Checked):
        '''V-trace'''                                # heading in --help
        discounting: float = option(0.99, "Discount factor per agent step.")

    define_flags(VTraceConfig)
    run_main(lambda: train(from_flags(VTraceConfig)))

Programs import all they need from here. The other modules of this folder are `flag_definitions`
(flags from dataclasses), `flag_parsers` (numbers), `presets` (layers of defaults), `flag_origins`
(which layer set a value) and `main_program` (running a program).
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import flags

from seed_rl.common.config import flag_origins
from seed_rl.common.config.flag_definitions import (
    ALIASES,
    OLD_FLAGS,
    default_of,
    define_flags,
    is_of_another_class,
    same_value,
    shown,
    without_none,
)
from seed_rl.common.config.main_program import run_main
from seed_rl.common.config.presets import Preset
from seed_rl.common.errors import UserError

__all__ = (
    "Checked",
    "Preset",
    "UserError",
    "define_flags",
    "environment_identity",
    "flag_dictionary",
    "flag_values",
    "from_flags",
    "from_values",
    "library_flags",
    "network_options",
    "option",
    "option_of",
    "refuse_contradiction",
    "refuse_unused",
    "run_main",
)

T = TypeVar("T")

_LIBRARIES = ("absl", "tensorflow")  # They define flags too.


def option(
    default: Any,
    help: str,  # noqa: A002 - the field's term for it.
    *,
    choices: Sequence[str] | None = None,
    aliases: Sequence[str] = (),
    minimum: float | None = None,
    maximum: float | None = None,
    shared: bool = False,
    neutral: bool = False,
    network: bool = False,
    repeated: bool = False,
) -> Any:
    """A dataclass field that is also a command-line flag.

    Args:
      default: the default, of the field's annotated type; tuples, not lists.
      help: one or two sentences, with units.
      choices: the values allowed, for strings.
      aliases: alternative flag names.
      minimum: smallest number allowed, also in a tuple.
      maximum: largest number allowed, also in a tuple.
      shared: whether another class may have this option too, for the same flag. The default and
        help of the class passed last to `define_flags` win.
      neutral: for options of environments: whether the value makes no difference to the agent (how
        the environment is rendered, say), so that a saved run may continue with another.
      network: whether the value decides what the network computes from its weights, or what its
        outputs mean: with another one, a saved run cannot continue even if the shapes fit.
      repeated: for tuples of strings: the flag is given once per element, which may contain commas.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "aliases": tuple(aliases),
        "minimum": minimum,
        "maximum": maximum,
        "shared": shared,
        "neutral": neutral,
        "network": network,
        "repeated": repeated,
    }
    return dataclasses.field(default=default, metadata=metadata)


def option_of(cls: Any, name: str, **changes: Any) -> Any:
    """The option `name` of another class, with other arguments of `option`."""
    field = cls.__dataclass_fields__[name]
    return dataclasses.field(default=field.default, metadata={**field.metadata, **changes})


def from_flags(cls: type[T], **overrides: Any) -> T:
    """The configuration that the flags set.

    Options without a flag of their own have the dataclass's default.

    Args:
      cls: dataclass of options.
      **overrides: values that win over the flags.
    """
    values = flag_dictionary()
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if is_of_another_class(field):
            values.pop(field.name, None)
    return from_values(cls, {**values, **overrides})


def from_values(cls: type[T], values: Mapping[str, Any]) -> T:
    """The configuration with the values of a mapping by names; others of its items are ignored."""
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    picked = {name: values[name] for name in names if name in values}
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in picked.items()})


class Checked:
    """Base of dataclasses of options: values are converted and checked as those of flags are.

    A subclass with a `__post_init__` of its own calls this one first. Fields that are not made by
    `option` are left alone.

    Raises:
      UserError: on construction; an option has a value that its flag would not accept.
    """

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if "help" in field.metadata:
                name = f"{type(self).__name__}.{field.name}"
                value = getattr(self, field.name)
                value = _checked(name, value, hints[field.name], field.metadata)
                object.__setattr__(self, field.name, value)


def _checked(name: str, value: Any, hint: Any, metadata: Mapping[str, Any]) -> Any:
    kind = without_none(hint)
    if value is None and kind is not hint:
        return None
    if typing.get_origin(kind) is not tuple:
        return _scalar(name, value, kind, metadata)
    if not isinstance(value, (list, tuple)):
        raise UserError(f"{name} must be a tuple, not {value!r}.")
    return tuple(_scalar(name, one, typing.get_args(kind)[0], metadata) for one in value)


def _scalar(name: str, value: Any, kind: Any, metadata: Mapping[str, Any]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is bool and not isinstance(value, bool):
        raise UserError(f"{name} must be True or False, not {value!r}.")
    if kind is str and not isinstance(value, str):
        raise UserError(f"{name} must be a string, not {value!r}.")
    if kind is int and not (is_number and value == value // 1):
        raise UserError(f"{name} must be a whole number, not {value!r}.")
    if kind is float and not (is_number and math.isfinite(value)):
        raise UserError(f"{name} must be a finite number, not {value!r}.")
    if kind in (int, float):
        value = kind(value)
        minimum, maximum = metadata["minimum"], metadata["maximum"]
        if minimum is not None and value < minimum:
            raise UserError(f"{name} must be at least {minimum}, not {value}.")
        if maximum is not None and value > maximum:
            raise UserError(f"{name} must be at most {maximum}, not {value}.")
    if metadata["choices"] and value not in metadata["choices"]:
        raise UserError(f"{name} must be one of {', '.join(metadata['choices'])}, not {value!r}.")
    return value


def environment_identity(config: Any) -> dict[str, Any]:
    """The options that define the environment: a run saved with other values cannot continue.

    Args:
      config: a dataclass of options. Any other object has none.
    """
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return {}
    fields = dataclasses.fields(config)
    return {f.name: getattr(config, f.name) for f in fields if not f.metadata.get("neutral")}


def network_options(*configs: Any) -> frozenset[str]:
    """Names of the options marked `network`, of the program's flags and of some dataclasses.

    Args:
      *configs: dataclasses of options, for programs without flags.
    """
    fields = [field for config in configs for field in dataclasses.fields(config)]
    own = {field.name for field in fields if field.metadata.get("network")}
    known = {name: default_of(flags.FLAGS[name]) for name in flag_dictionary()}
    return frozenset(own | {name for name, default in known.items() if default and default.network})


def flag_dictionary() -> dict[str, Any]:
    """The values of the program's flags by name, without aliases, flags of libraries and
    those without an option; empty before flags are parsed.
    """
    if not flags.FLAGS.is_parsed():
        return {}
    return {
        flag.name: flag.value
        for heading, defined in flags.FLAGS.flags_by_module_dict().items()
        for flag in defined
        if flag.name not in ALIASES and heading != OLD_FLAGS and not _is_of_library(heading)
    }


def library_flags() -> frozenset[str]:
    """The flags that absl and other libraries define for themselves; no run records them."""
    own = {
        flag.name
        for heading, defined in flags.FLAGS.flags_by_module_dict().items()
        for flag in defined
        if _is_of_library(heading)
    }
    return frozenset(own | {"flagfile", "undefok"})  # absl does not keep these two with the others.


def _is_of_library(heading: str) -> bool:
    return heading.partition(".")[0] in _LIBRARIES


def refuse_unused(names: Sequence[str], why: str) -> None:
    """Refuses flags that were set but would have no effect.

    Args:
      names: flags to check; those that the program does not define are ignored.
      why: why they have no effect.

    Raises:
      UserError: one of them differs from its default.
    """
    known = [flags.FLAGS[name] for name in names if name in flags.FLAGS]
    changed = [f"--{flag.name}" for flag in known if flag.value != flag.default]
    if changed and flags.FLAGS.is_parsed():
        raise UserError(f"{' and '.join(changed)} would have no effect: {why}. Leave it out.")


def refuse_contradiction(name: str, value: Any, why: str) -> None:
    """Refuses a flag that was set to another value than the one in effect; 0 stands for any.

    Args:
      name: of the flag; nothing is refused if the program does not define it.
      value: in effect.
      why: what sets it, such as "--step_size_transitions=256".

    Raises:
      UserError: both were given.
    """
    flag = flags.FLAGS[name] if name in flags.FLAGS else None
    chosen = flag is not None and flag.value and flag_origins.is_chosen(name)
    if flag is not None and chosen and not same_value(flag.value, value):
        raise UserError(f"--{name}={shown(flag.value)} contradicts {why}, which makes it {value}.")


def flag_values(*configs: Any) -> dict[str, Any]:
    """The options of `configs` as one flat dictionary, for logs and checkpoints."""
    return {k: v for config in configs for k, v in dataclasses.asdict(config).items()}
