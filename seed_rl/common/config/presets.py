"""Named layers of defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class Preset:
    """Defaults that replace those of the dataclasses, for one agent or one main program.

    Presets are applied in order, so a later one wins; a flag file and the command line win over
    all presets.

    Attributes:
      name: what it is for, such as "r2d2"; `--help`, the learner's log and `config.json` name it.
      values: defaults by the name of the option.
    """

    name: str
    values: Mapping[str, Any]

    def without(self, names: Collection[str]) -> Preset:
        """The preset without the options of these names."""
        kept = {name: value for name, value in self.values.items() if name not in names}
        return dataclasses.replace(self, values=kept)

    @property
    def origin(self) -> str:
        """How the origin of these defaults is shown."""
        return f"{self.name} preset"
