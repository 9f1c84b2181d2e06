"""Typed options, and command-line flags generated from them.

A configuration is a frozen dataclass whose fields are made by `option`. Library code takes such
objects; only the `*_main.py` programs turn them into flags (`define_flags`) and read the flags
back (`from_flags`), so each option, its default and its help are written once.

    @dataclasses.dataclass(frozen=True)
    class VTraceConfig:
        '''V-trace'''                                # heading in --help
        discounting: float = option(0.99, "Discount factor per agent step.")

    define_flags(VTraceConfig)
    app.run(lambda _: train(from_flags(VTraceConfig)))

No TensorFlow is imported: actors read their options through this module too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import decimal
import functools
import gc
import os
import re
import signal
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from absl import app, flags

from seed_rl.common.errors import UserError
from seed_rl.common.system import terminal

T = TypeVar("T")

# Whole powers of up to a thousand digits: a larger one would only keep the machine busy.
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?[eE]\+?\d{1,3}")
_LIBRARIES = ("absl", "tensorflow")  # They define flags too.
_ALIASES: set[str] = set()  # Other names of flags.
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
) -> Any:
    """A dataclass field that is also a command-line flag.

    Args:
      default: the default; its type must fit the field's annotation. Lists are given as tuples.
      help: one or two sentences, with units.
      choices: for strings, the values allowed.
      aliases: other flag names that mean the same.
      minimum: smallest number allowed, also in a tuple.
      maximum: largest number allowed.
      shared: whether another class has this option too and both mean the same flag. The default
        and help of the class named last to `define_flags` win.
      neutral: for options of environments: whether an agent meets the same environment with any
        value (how it is shown, say), so that a saved run may be continued with another.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "aliases": tuple(aliases),
        "minimum": minimum,
        "maximum": maximum,
        "shared": shared,
        "neutral": neutral,
    }
    return dataclasses.field(default=default, metadata=metadata)


def define_flags(*config_classes: type, **overrides: Any) -> None:
    """Defines one absl flag per option of each class.

    Args:
      *config_classes: dataclasses made of `option` fields. Flag names are the field names and
        must be unique among the classes, except for inherited fields and those that a later
        class declares as `shared`.
      **overrides: defaults of this program that differ from the class's.
    """
    options = _options(config_classes, overrides)
    for name, (field, hint, heading) in options.items():
        _define(field, hint, overrides.get(name, field.default), heading)
        _define_aliases(field, heading)


def provide_flags(*config_classes: type, **overrides: Any) -> None:
    """Defines the flags that are missing, for programs that define theirs with absl.

    Modules whose import brings flags in existing programs call this. A flag that is there already
    stays; one made here gives way to any definition of its name, by `define_flags`, by absl, or by
    a later call for a class that declares it as `shared`.

    Args:
      *config_classes: dataclasses made of `option` fields.
      **overrides: defaults that differ from the class's.
    """
    for name, (field, hint, heading) in _options(config_classes, overrides).items():
        known = flags.FLAGS[name] if name in flags.FLAGS else None
        replaced = known is not None and known.allow_override and field.metadata["shared"]
        if known is None or (replaced and not flags.FLAGS.is_parsed()):
            default = overrides.get(name, field.default)
            _define(field, hint, default, heading, allow_override=True)
            _define_aliases(field, heading)


def _options(
    config_classes: Sequence[type], overrides: Mapping[str, Any]
) -> dict[str, tuple[dataclasses.Field[Any], Any, str]]:
    """By name: field, its type, and the heading of its class."""
    options: dict[str, tuple[dataclasses.Field[Any], Any, str]] = {}
    for cls in config_classes:
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            known = options.get(field.name)
            if known and known[0] is field:
                continue  # Inherited from a class that was named before, or from a common base.
            if known and not (field.metadata["shared"] and known[1] == hints[field.name]):
                raise ValueError(f"{cls.__name__}.{field.name}: another class has this option")
            options[field.name] = (field, hints[field.name], _heading(cls))
    unknown = set(overrides) - set(options)
    if unknown:
        raise ValueError(f"No such options: {', '.join(sorted(unknown))}")
    return options


def _define_aliases(field: dataclasses.Field[Any], heading: str) -> None:
    for alias in field.metadata["aliases"]:
        if alias not in flags.FLAGS:
            flags.DEFINE_alias(alias, field.name, module_name=heading)
            _ALIASES.add(alias)


def from_flags(cls: type[T]) -> T:
    """The configuration that the command line asks for.

    Options that the program defined no flag for have their defaults.
    """
    return _picked(cls, flag_dictionary())


def as_config(cls: type[T], config: Any) -> T:
    """`config` as a `cls`, for functions that existing programs call with other objects.

    Args:
      cls: dataclass of options.
      config: a `cls`, which is returned; a mapping or any other object, such as absl's FLAGS,
        whose items or attributes with the names of options are taken; None for the flags.
    """
    if isinstance(config, cls):
        return config
    if config is None or config is flags.FLAGS:
        return from_flags(cls)
    if isinstance(config, Mapping):
        return _picked(cls, config)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    return _picked(cls, {name: getattr(config, name) for name in names if hasattr(config, name)})


def environment_options(config: Any) -> Any:
    """`config`, or the flags of the program if there is none, as existing environments expect."""
    return flags.FLAGS if config is None and flags.FLAGS.is_parsed() else config


def environment_identity(config: Any) -> dict[str, Any]:
    """The options that make an environment what it is: a run saved with others is another one.

    Args:
      config: a dataclass of options. Of anything else (FLAGS, in existing programs) only the
        options that commonly name the environment are known.
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
    """The values of the program's flags by name, without aliases and the flags of libraries; empty
    before they are parsed.
    """
    if not flags.FLAGS.is_parsed():
        return {}
    return {
        flag.name: flag.value
        for heading, defined in flags.FLAGS.flags_by_module_dict().items()
        for flag in defined
        if flag.name not in _ALIASES and heading.partition(".")[0] not in _LIBRARIES
    }


def refuse_unused(names: Sequence[str], why: str) -> None:
    """Refuses flags that were set, but that nothing would read.

    Args:
      names: of flags; those that the program has not are left out.
      why: what stands in place of what they are for.

    Raises:
      UserError: one of them has not its default.
    """
    known = [flags.FLAGS[name] for name in names if name in flags.FLAGS]
    changed = [f"--{flag.name}" for flag in known if flag.value != flag.default]
    if changed and flags.FLAGS.is_parsed():
        raise UserError(f"{' and '.join(changed)} would have no effect: {why}. Leave it out.")


def flag_values(*configs: Any) -> dict[str, Any]:
    """The options of `configs` as one flat dictionary, for logs and checkpoints."""
    return {k: v for config in configs for k, v in dataclasses.asdict(config).items()}


def run_main(
    main: Callable[[], int | None], prepare: Callable[[], None] | None = None
) -> typing.NoReturn:
    """Parses flags, runs `main` and exits.

    A wrong flag and a `UserError` become one line and exit code 2, or the error's own; `--help`
    shows the options by the class that has them. SIGTERM ends the program with exit code 0 and
    SIGINT with 130, at once unless `main` handles them (see `StopSignal`): before that there is
    nothing to save.

    Args:
      main: returns the exit code, or None for 0.
      prepare: called before `main`, with the flags parsed; with --only_check_args instead of it.
    """

    def guarded(argv: Sequence[str]) -> int:
        # Not the default action, which the first process of a container does not have.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        interrupt: Any = terminal.interrupt_ends()
        try:
            if len(argv) > 1:
                raise UserError(f"Unknown argument '{argv[1]}'; options look like --name=value.")
            return main() or 0
        except UserError as error:
            with contextlib.suppress(OSError):  # A log on a full disk: the exit code remains.
                print(f"error: {error}", file=sys.stderr, flush=True)
            return error.exit_code
        except KeyboardInterrupt:
            return 130
        finally:
            # The exit code is settled: a SIGTERM sent again while Python ends must not change it.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, interrupt)
            # At exit, Python would look for garbage in all of TensorFlow's modules for seconds.
            gc.freeze()

    app.run(guarded, flags_parser=functools.partial(_parse, prepare))
    raise AssertionError("app.run returned")


def _parse(prepare: Callable[[], None] | None, argv: Sequence[str]) -> list[str]:
    if {"--help", "-help", "-h", "-?"} & set(argv[1:]):
        terminal.end_without_reader()
        print(help_text(argv[0]))
        sys.exit(0)
    try:
        remaining = flags.FLAGS(list(argv))
        if prepare is not None:
            prepare()
        return remaining
    except flags.Error as error:
        message = " ".join(str(error).split())
        print(f"error: {message} (--help lists the options)", file=sys.stderr)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    sys.exit(2)


def help_text(program: str) -> str:
    """The options of the program, under the headings of their classes."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = f"python -m {spec.name}" if spec else program
    headings = [h for h in flags.FLAGS.flags_by_module_dict() if not _of_absl(h)]
    options = "\n\n".join(flags.FLAGS.module_help(h).strip("\n") for h in headings)
    about = (main.__doc__ or "").strip()
    return f"{about}\n\nusage: {name} [--option=value ...]\n\n{options}\n\n--helpfull adds absl's."


def _of_absl(heading: str) -> bool:
    return heading.startswith("absl.") or heading in sys.modules


def _heading(cls: type) -> str:
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")


def _define(
    field: dataclasses.Field[Any],
    hint: Any,
    default: Any,
    heading: str,
    allow_override: bool = False,
) -> None:
    metadata = field.metadata
    kind, optional = _strip_optional(hint)
    common: dict[str, Any] = {"module_name": heading, "allow_override": allow_override}
    if metadata["choices"]:
        flags.DEFINE_enum(field.name, default, metadata["choices"], metadata["help"], **common)
    elif kind is bool:
        flags.DEFINE_bool(field.name, default, metadata["help"], **common)
    elif kind is int:
        flags.DEFINE(
            _WholeNumberParser(metadata["minimum"], metadata["maximum"]),
            field.name,
            default,
            metadata["help"],
            serializer=flags.ArgumentSerializer(),
            **common,
        )
    elif kind is float:
        flags.DEFINE_float(
            field.name,
            default,
            metadata["help"],
            lower_bound=metadata["minimum"],
            upper_bound=metadata["maximum"],
            **common,
        )
    elif kind is str:
        flags.DEFINE_string(field.name, default, metadata["help"], **common)
    elif typing.get_origin(kind) is tuple:
        element = typing.get_args(kind)[0]
        parser: Any = flags.ArgumentParser()
        if element is int:
            parser = _WholeNumberParser(metadata["minimum"], metadata["maximum"])
        elif element is float:
            parser = flags.FloatParser(metadata["minimum"], metadata["maximum"])
        flags.DEFINE(
            flags.ListParser() if element is str else _NumbersParser(parser),
            field.name,
            list(default) if default is not None else None,
            metadata["help"],
            serializer=flags.CsvListSerializer(","),
            **common,
        )
    else:
        raise TypeError(f"{field.name}: no flag can hold {hint} (optional: {optional})")


class _WholeNumberParser(flags.IntegerParser):
    """Also takes 1e6 and 1_000_000."""

    def convert(self, argument: Any) -> int:
        try:
            return super().convert(argument)
        except ValueError:
            number = decimal.Decimal(argument) if _NUMBER.fullmatch(argument) else None
            if number is None or number != number.to_integral_value():
                raise ValueError("a whole number is needed, such as 1000000 or 1e6") from None
            return int(number)


class _NumbersParser(flags.ArgumentParser):
    """Comma-separated numbers."""

    def __init__(self, element: Any):
        self._element = element
        self.syntactic_help = "comma-separated numbers"

    def parse(self, argument: Any) -> list[Any]:
        if isinstance(argument, (list, tuple)):
            return list(argument)
        return [self._element.parse(part) for part in argument.split(",") if part]

    def flag_type(self) -> str:
        return "numbers"


def _strip_optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return inner[0], True
    return hint, False
