"""A program of the test.

presets_program.py SETTINGS [flags]

SETTINGS is JSON: `defaults` of the program, `typo` for a preset with an unknown option, `gnu`,
whether flags may follow positional arguments, and `replayed`, the record for
`flag_origins.replaying`.
"""

import contextlib
import dataclasses
import json
import sys

from absl import app, flags

from seed_rl.common.config import flag_origins
from seed_rl.common.config.options import Preset, define_flags, from_flags, option, run_main

flags.DEFINE_integer("own", 5, "Defined with absl.")


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shape"""

    width: float = option(1.0, "Width.")
    depth: int = option(1, "Depth.")
    height: int = option(1, "Height.")
    sizes: tuple[int, ...] = option((1, 2), "Sizes.")
    round: bool = option(False, "Round.")
    name: str = option("a", "Name.", aliases=("label",))


def main():
    values = {**dataclasses.asdict(from_flags(Shape)), "own": flags.FLAGS.own}
    every = {name: flag_origins.origin(name) for name in values}
    changed = flag_origins.origins(values)
    print(json.dumps({"values": values, "every": every, "changed": changed}))


if __name__ == "__main__":
    settings = json.loads(sys.argv.pop(1))
    depth = "dept" if settings.get("typo") else "depth"
    presets = (
        Preset("agent", dict(width=2.0, depth=2, sizes=(3,))),
        Preset("agent on boxes", {depth: 3, "height": 1}),
    )
    define_flags(Shape, presets=presets, **settings.get("defaults", {}))
    replayed = settings.get("replayed")
    with flag_origins.replaying(replayed) if replayed else contextlib.nullcontext():
        if "gnu" in settings:
            flags.FLAGS.set_gnu_getopt(settings["gnu"])
            app.run(lambda _: main())
        run_main(main)
