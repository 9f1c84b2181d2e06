"""Options of the V-trace agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option


@dataclasses.dataclass(frozen=True)
class VTraceConfig:
    """V-trace: the loss."""

    discounting: float = option(0.99, "Discount factor per agent step.", minimum=0.0, maximum=1.0)
    lambda_: float = option(
        1.0,
        "Lambda of the value targets, as in TD(lambda): 0 for one-step targets, 1 for full "
        "returns.",
        minimum=0.0,
        maximum=1.0,
    )
    max_importance_weight: float = option(
        1.0, "Clipping threshold of importance weights in the value targets (rho-bar).", minimum=0.0
    )
    max_pg_importance_weight: float = option(
        1.0, "Clipping threshold of importance weights in the policy gradient.", minimum=0.0
    )
    reward_scaling: float = option(
        1.0,
        "Factor applied to rewards before clipping; returns of about 1 to 10 are learned fastest.",
        minimum=0.0,
    )
    asymmetric_rewards: bool = option(
        False,
        "Whether rewards are squashed before scaling, positive ones by 5 tanh(r) and negative ones "
        "by 0.3 tanh(r): for tasks whose rewards differ in scale, as in IMPALA on DMLab-30.",
    )
    max_abs_reward: float | None = option(
        None, "Rewards are clipped to this absolute value. 0 or none: no clipping.", minimum=0.0
    )
    baseline_cost: float = option(
        0.5, "Weight of the value loss, half the mean squared error.", minimum=0.0
    )
    entropy_cost: float = option(
        0.01,
        "Weight of the entropy bonus; with target_entropy, its initial value.",
        minimum=0.0,
    )
    target_entropy: float | None = option(
        None,
        "Target entropy in nats; entropy_cost is adjusted to reach it. Default: no adjustment.",
    )
    entropy_cost_adjustment_speed: float = option(
        10.0,
        "Speed at which the entropy cost is adjusted, relative to the learning rate.",
        minimum=0.0,
    )
    kl_cost: float = option(0.0, "Weight of KL(behaviour policy || learner's policy).", minimum=0.0)
    popart: bool = option(
        False,
        "Whether the network predicts values normalized by the statistics of their targets, for "
        "rewards of any scale.",
        network=True,
    )
    popart_beta: float = option(
        3e-4,
        "With popart: weight of a batch in the moving averages of the statistics.",
        minimum=1e-8,
        maximum=1.0,
    )
