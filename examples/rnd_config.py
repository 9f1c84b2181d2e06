"""Options of the exploration bonus. Actors import them too, so no TensorFlow here."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option


@dataclasses.dataclass(frozen=True)
class RNDConfig:
    """Exploration bonus (RND)."""

    bonus: float = option(0.1, "Weight of the bonus that is added to rewards.", minimum=0.0)
    bonus_loss: float = option(1.0, "Weight of the predictor's loss.", minimum=0.0)
