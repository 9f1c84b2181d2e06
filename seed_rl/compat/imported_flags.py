"""Flags that programs of the original get by importing modules, and pass around as FLAGS."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from absl import flags

from seed_rl.common.config import flag_definitions
from seed_rl.common.config.flag_definitions import DATACLASS
from seed_rl.common.config.options import from_flags, from_values
from seed_rl.common.config.presets import Preset

T = TypeVar("T")

_NAMES_OF_ENVIRONMENTS = ("game", "env_name")


def provide(*config_classes: type, presets: Sequence[Preset] = ()) -> None:
    """Defines the flags that are missing, for programs that define their own with absl.

    Modules that define flags on import call this. An existing flag stays; one made here gives way
    to any definition of its name: by `define_flags`, by absl, or by a later call with a default for
    it, or for a class that declares it as `shared`.

    Args:
      *config_classes: dataclasses with `option` fields.
      presets: defaults that replace those of the classes, applied in order. If flags are parsed
        already, the program does not take them from imports, and presets have no effect.
    """
    parsed = flags.FLAGS.is_parsed()
    collected = flag_definitions.collect(config_classes, presets)
    for name, (field, hint, heading) in collected.items():
        known = flags.FLAGS[name] if name in flags.FLAGS else None
        default = flag_definitions.layered_default(field, name, () if parsed else presets)
        wins = default.shared or default.origin != DATACLASS
        if known is None or (known.allow_override and wins and not parsed):
            flag_definitions.define(field, hint, default, heading, allow_override=True)


def as_config(cls: type[T], config: Any) -> T:
    """`config` as a `cls`.

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
        return from_values(cls, config)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    values = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return from_values(cls, values)


def of_environments(cls: type, create: Callable[[int, Any], T]) -> Callable[..., T]:
    """Provides the flags of `cls`, and returns `create(task, config)` for all that `as_config`
    takes; without a config, for the flags.
    """
    provide(cls)

    @functools.wraps(create)
    def create_environment(task: int, config: Any = None) -> T:
        return create(task, as_config(cls, config))

    return create_environment


def names_of_environments(config: Any) -> dict[str, Any]:
    """The options of any object, such as FLAGS, that commonly name the environment."""
    return {name: getattr(config, name) for name in _NAMES_OF_ENVIRONMENTS if hasattr(config, name)}
