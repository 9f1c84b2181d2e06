"""A program of the test."""

import dataclasses

from seed_rl.common.config import options
from seed_rl.common.config.options import option
from seed_rl.common.errors import UserError


@dataclasses.dataclass(frozen=True)
class Shape:
    """Shape: what it looks like."""

    width: float = option(0.5, "How wide, in metres.", minimum=0)
    sizes: tuple[int, ...] = option((1, 2), "Layer sizes.")
    name: str | None = option(None, "What it is called.", aliases=("label-name",))
    round: bool = option(False, "Whether it has no corners.")
    kind: str = option("box", "Which kind.", choices=("box", "ball"))


@dataclasses.dataclass(frozen=True)
class Other:
    """Other"""

    depth: int = option(3, "How deep.", minimum=1)


def main():
    shape = options.from_flags(Shape)
    if shape.name == "bad":
        raise UserError("Choose another --name.")
    print(shape, options.from_flags(Other))
    print(*sorted(options.flag_dictionary()))


if __name__ == "__main__":
    options.define_flags(Shape, Other, depth=7)
    options.run_main(main)
