"""absl flags generated from dataclasses of options."""

from __future__ import annotations

import dataclasses
import types
import typing
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from seed_rl.common.config.flag_parsers import FiniteParser, NumbersParser, WholeNumberParser
from seed_rl.common.config.presets import Preset

DATACLASS = "dataclass"
PROGRAM = "program"
SAVED_RUN = "saved run"
OLD_FLAGS = "Flags of existing programs"
"""Heading of flags without an option; the records of runs leave them out."""

ALIASES: dict[str, str] = {}
"""Alternative names of flags, and the flags' names."""


@dataclasses.dataclass(frozen=True)
class Default:
    """Where a flag's default comes from.

    Attributes:
      library: the dataclass's default.
      effective: the flag's default, after all presets.
      origin: the layer that sets `effective`.
      shared: whether other classes have the same flag and take its default.
      neutral: see `options.option`.
      network: see `options.option`.
    """

    library: Any
    effective: Any
    origin: str
    shared: bool = False
    neutral: bool = False
    network: bool = False


_defaults: weakref.WeakKeyDictionary[flags.Flag[Any], Default] = weakref.WeakKeyDictionary()


def default_of(flag: flags.Flag[Any]) -> Default | None:
    """Where the flag's default comes from; None if it was not generated from an option."""
    return _defaults.get(flag)


def replace_default(name: str, value: Any) -> None:
    """Makes the value of a saved run the default of a flag; a value that the user has set stays.

    Args:
      name: of a flag; flags are parsed.
      value: as the flag holds it, or as read back from JSON.

    Raises:
      TypeError, ValueError, flags.IllegalFlagValueError: the flag does not accept it.
    """
    flag = flags.FLAGS[name]
    known = _defaults.get(flag) or Default(flag.default, flag.default, PROGRAM)
    flag.using_default_value = not is_given(flag)
    flags.FLAGS.set_default(name, value)
    _defaults[flag] = dataclasses.replace(known, effective=flag.default, origin=SAVED_RUN)


def define_flags(*config_classes: type, presets: Sequence[Preset] = (), **defaults: Any) -> None:
    """Defines one absl flag per option of each class.

    Args:
      *config_classes: dataclasses with `option` fields. Flag names are the field names and must be
        unique among the classes, except for inherited fields and those that a later class declares
        as `shared`.
      presets: defaults that replace those of the classes, applied in order.
      **defaults: defaults of this program, applied after the presets.

    Raises:
      ValueError: two classes have an option of the same name, or a preset names an unknown one.
    """
    layers = (*presets, Preset(PROGRAM, defaults))
    for name, (field, hint, heading) in collect(config_classes, layers).items():
        define(field, hint, layered_default(field, name, layers), heading)


def is_given(flag: flags.Flag[Any]) -> bool:
    """Whether the user or the program has set a flag, also by an alias, which absl forgets."""
    return bool(flag.present) or not flag.using_default_value


def is_of_another_class(field: dataclasses.Field[Any]) -> bool:
    """Whether the flag with an option's name only holds the default of another class's option.

    This happens in a process that imports several environment families, each with its own `game`.
    """
    flag = flags.FLAGS[field.name] if field.name in flags.FLAGS else None
    default = _defaults.get(flag) if flag is not None else None
    return (
        flag is not None
        and default is not None
        and not is_given(flag)
        and (default.origin == DATACLASS or flag.allow_override)
        and not default.shared
        and not same_value(default.library, field.default)
    )


def collect(
    config_classes: Sequence[type], layers: Sequence[Preset]
) -> dict[str, tuple[dataclasses.Field[Any], Any, str]]:
    """Options of dataclasses, by name: field, its type, and the heading of its class.

    Raises:
      ValueError: see `define_flags`.
    """
    options: dict[str, tuple[dataclasses.Field[Any], Any, str]] = {}
    for cls in config_classes:
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            known = options.get(field.name)
            if known and known[0] is field:
                continue  # Inherited from an earlier class, or from a common base.
            if known and not (field.metadata["shared"] and known[1] == hints[field.name]):
                raise ValueError(f"{cls.__name__}.{field.name}: another class has this option")
            options[field.name] = (field, hints[field.name], _heading(cls))
    for layer in layers:
        if unknown := set(layer.values) - set(options):
            where = "" if layer.name == PROGRAM else f" ({layer.origin})"
            raise ValueError(f"No such options: {', '.join(sorted(unknown))}{where}")
    return options


def layered_default(field: dataclasses.Field[Any], name: str, layers: Sequence[Preset]) -> Default:
    """The default of an option's flag, after all presets."""
    marks = {mark: field.metadata[mark] for mark in ("shared", "neutral", "network")}
    default = Default(field.default, field.default, DATACLASS, **marks)
    for layer in layers:
        if name in layer.values:
            origin = PROGRAM if layer.name == PROGRAM else layer.origin
            default = dataclasses.replace(default, effective=layer.values[name], origin=origin)
    return default


def _heading(cls: type) -> str:
    return (cls.__doc__ or cls.__name__).strip().splitlines()[0].rstrip(".")


def _help(field: dataclasses.Field[Any], default: Default) -> str:
    """The help of the option; names the layer that replaces the dataclass's default."""
    text = str(field.metadata["help"])
    if default.origin == DATACLASS or same_value(default.effective, default.library):
        return text
    return f"{text} Default from the {default.origin} (library default: {shown(default.library)})."


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of an option are equal; flags hold tuples as lists."""
    return bool(_comparable(a) == _comparable(b))


def _comparable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def shown(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None or value in ((), []):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _define_aliases(field: dataclasses.Field[Any], heading: str) -> None:
    known = [alias for alias, name in ALIASES.items() if name == field.name]
    for alias in dict.fromkeys((*field.metadata["aliases"], *known)):
        if alias in known and alias in flags.FLAGS:
            delattr(flags.FLAGS, alias)  # It sets the flag that the new one has replaced.
        if alias not in flags.FLAGS:
            flags.DEFINE_alias(alias, field.name, module_name=heading)
            ALIASES[alias] = field.name


def define(
    field: dataclasses.Field[Any],
    hint: Any,
    default: Default,
    heading: str,
    allow_override: bool = False,
) -> None:
    """Defines the flag of an option, and its aliases."""
    metadata, name, value = field.metadata, field.name, default.effective
    text = _help(field, default)
    kind = without_none(hint)
    common: dict[str, Any] = {"module_name": heading, "allow_override": allow_override}
    if metadata["choices"]:
        flags.DEFINE_enum(name, value, metadata["choices"], text, **common)
    elif kind is bool:
        flags.DEFINE_bool(name, value, text, **common)
    elif kind in (int, float):
        number = WholeNumberParser if kind is int else FiniteParser
        parser: Any = number(metadata["minimum"], metadata["maximum"])
        serializer: Any = flags.ArgumentSerializer()
        flags.DEFINE(parser, name, value, text, serializer=serializer, **common)
    elif kind is str:
        flags.DEFINE_string(name, value, text, **common)
    elif metadata["repeated"]:
        flags.DEFINE_multi_string(name, list(value), text, **common)
    elif typing.get_origin(kind) is tuple:
        values = None if value is None else list(value)
        parser = _list_parser(typing.get_args(kind)[0], metadata)
        commas = flags.CsvListSerializer(",")
        flags.DEFINE(parser, name, values, text, serializer=commas, **common)
    else:
        raise TypeError(f"{name}: no flag can hold {hint}")
    flag = flags.FLAGS[name]
    _defaults[flag] = dataclasses.replace(default, effective=flag.default)
    _define_aliases(field, heading)


def _list_parser(element: Any, metadata: Mapping[str, Any]) -> Any:
    if element is str:
        return flags.ListParser()
    if element is int:
        return NumbersParser(WholeNumberParser(metadata["minimum"], metadata["maximum"]))
    if element is float:
        return NumbersParser(FiniteParser(metadata["minimum"], metadata["maximum"]))
    return NumbersParser(flags.ArgumentParser())


def without_none(hint: Any) -> Any:
    """`T` of `T | None`; any other type as it is."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return next(arg for arg in typing.get_args(hint) if arg is not type(None))
    return hint
