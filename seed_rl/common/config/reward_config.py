"""Options of rewards and returns, for any agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option


@dataclasses.dataclass(frozen=True)
class RewardConfig(Checked):
    """Rewards: discounting, scaling, clipping."""

    discounting: float = option(0.99, "Discount factor per agent step.", minimum=0.0, maximum=1.0)
    reward_scaling: float = option(1.0, "Factor applied to rewards before clipping.", minimum=0.0)
    max_abs_reward: float | None = option(
        None, "Rewards are clipped to this absolute value. 0: no clipping.", minimum=0.0
    )
