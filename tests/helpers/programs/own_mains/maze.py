"""Options of a user's environment."""

import dataclasses

from seed_rl.common.config.options import option


@dataclasses.dataclass(frozen=True)
class Maze:
    """Maze"""

    size: int = option(9, "Width.")
