"""Typed options: declared in dataclasses, set by flags, read as objects.

A configuration is a frozen dataclass whose fields are made by `option`. Library code takes such
objects; only the `*_main.py` programs turn them into flags (`define_flags`) and read the flags
back (`from_flags`), so each option, its default and its help are written once.

    @dataclasses.dataclass(frozen=True)
    class VTraceConfig:
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
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from seed_rl.common.config.flag_definitions import (
    ALIASES,
    OLD_FLAGS,
    define_flags,
    is_of_another_class,
    provide_flags,
)
from seed_rl.common.config.main_program import help_text, run_main
from seed_rl.common.config.presets import Preset
from seed_rl.common.errors import UserError

__all__ = (
    "Preset",
    "UserError",
    "as_config",
    "check",
    "define_flags",
    "environment_identity",
    "environment_options",
    "flag_dictionary",
    "flag_values",
    "from_flags",
    "help_text",
    "option",
    "provide_flags",
    "refuse_unused",
    "run_main",
)

T = TypeVar("T")

_NOT_OPTIONS = ("absl", "tensorflow", OLD_FLAGS)
"""Headings of other flags: those of libraries, and those that only set options."""
_NAMES_OF_ENVIRONMENTS = ("game", "env_name")  # Flags of existing programs.


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
        "repeated": repeated,
    }
    return dataclasses.field(default=default, metadata=metadata)


def from_flags(cls: type[T]) -> T:
    """The configuration that the flags set.

    Options without a flag of their own have the dataclass's default.
    """
    values = flag_dictionary()
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if is_of_another_class(field):
            values.pop(field.name, None)
    return _picked(cls, values)


def as_config(cls: type[T], config: Any) -> T:
    """`config` as a `cls`, for functions that existing programs call with other objects.

    Args:
      cls: dataclass of options.
      config: a `cls`, returned as it is; a mapping, or any other object such as absl's FLAGS, whose
        items or attributes are read by the names of the options; None for the flags.
    """
    if isinstance(config, cls):
        return config
    if config is None or config is flags.FLAGS:
        return from_flags(cls)
    if isinstance(config, Mapping):
        return _picked(cls, config)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return _picked(cls, {name: getattr(config, name) for name in names if hasattr(config, name)})


def check(config: T) -> T:
    """Checks values that no flag has checked against choices and bounds; returns `config`.

    Raises:
      UserError: an option has a value that its flag would not accept.
    """
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        value, metadata = getattr(config, field.name), field.metadata
        name = f"{type(config).__name__}.{field.name}"
        if metadata["choices"] and value not in metadata["choices"]:
            raise UserError(
                f"{name} must be one of {', '.join(metadata['choices'])}, not {value!r}."
            )
        for number in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(number, (int, float)):
                _check_bounds(name, number, metadata)
            elif isinstance(number, str) and isinstance(field.default, (bool, int, float)):
                raise UserError(f"{name} must not be a string, but is {number!r}.")
    return config


def _check_bounds(name: str, number: float, metadata: Mapping[str, Any]) -> None:
    minimum, maximum = metadata["minimum"], metadata["maximum"]
    if minimum is not None and not number >= minimum:
        raise UserError(f"{name} must be at least {minimum}, not {number}.")
    if maximum is not None and not number <= maximum:
        raise UserError(f"{name} must be at most {maximum}, not {number}.")


def environment_options(config: Any) -> Any:
    """`config`, or if None the program's flags, as existing environments expect."""
    return flags.FLAGS if config is None and flags.FLAGS.is_parsed() else config


def environment_identity(config: Any) -> dict[str, Any]:
    """The options that define the environment: a run saved with other values cannot continue.

    Args:
      config: a dataclass of options. Of any other object (FLAGS, in existing programs), only the
        options that commonly name the environment are returned.
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        fields = dataclasses.fields(config)
        names = [field.name for field in fields if not field.metadata.get("neutral")]
    else:
        names = [name for name in _NAMES_OF_ENVIRONMENTS if hasattr(config, name)]
    return {name: getattr(config, name) for name in names}


def _picked(cls: type[T], values: Mapping[str, Any]) -> T:
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    picked = {name: values[name] for name in names if name in values}
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in picked.items()})


def flag_dictionary() -> dict[str, Any]:
    """The values of the program's flags by name, without aliases, flags of libraries and old
    flags; empty before flags are parsed.
    """
    if not flags.FLAGS.is_parsed():
        return {}
    return {
        flag.name: flag.value
        for heading, defined in flags.FLAGS.flags_by_module_dict().items()
        for flag in defined
        if flag.name not in ALIASES and heading.partition(".")[0] not in _NOT_OPTIONS
    }


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


def flag_values(*configs: Any) -> dict[str, Any]:
    """The options of `configs` as one flat dictionary, for logs and checkpoints."""
    return {k: v for config in configs for k, v in dataclasses.asdict(config).items()}
