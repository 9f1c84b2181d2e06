"""Options of the V-trace agent (no TensorFlow here)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option


@dataclasses.dataclass(frozen=True)
class VTraceConfig:
    """V-trace: the loss."""

    discounting: float = option(0.99, "Discount factor per agent step.", minimum=0.0, maximum=1.0)
    lambda_: float = option(
        1.0,
        "Mixes value targets of all lengths as TD(lambda) does: 1 the longest, 0 one step.",
        minimum=0.0,
        maximum=1.0,
    )
    max_importance_weight: float = option(
        1.0, "Clipping of importance weights in value targets (rho-bar of the paper).", minimum=0.0
    )
    max_pg_importance_weight: float = option(
        1.0, "Clipping of importance weights in the policy gradient.", minimum=0.0
    )
    reward_scaling: float = option(
        1.0,
        "Factor of rewards, before clipping: brings returns to a size that a network learns "
        "quickly, about 1 to 10.",
        minimum=0.0,
    )
    max_abs_reward: float | None = option(
        None, "Rewards are clipped to at most this size. 0 or not given: as they are.", minimum=0.0
    )
    baseline_cost: float = option(
        0.5, "Weight of the value loss, half the mean squared error.", minimum=0.0
    )
    entropy_cost: float = option(
        0.01,
        "Weight of the entropy bonus; with target_entropy, the weight that training starts from.",
        minimum=0.0,
    )
    target_entropy: float | None = option(
        None,
        "Entropy in nats that entropy_cost is adjusted to reach. Not given: no adjustment.",
    )
    entropy_cost_adjustment_speed: float = option(
        10.0,
        "How fast the entropy cost is adjusted, relative to the learning rate.",
        minimum=0.0,
    )
    kl_cost: float = option(0.0, "Weight of KL(behaviour policy || learner's policy).", minimum=0.0)
