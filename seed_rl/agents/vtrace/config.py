"""Options of the V-trace agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.learner_config import RewardConfig
from seed_rl.common.config.options import Checked, option, option_of
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError

NO_SHAPING, OPTIMISTIC, SOFT = "none", "optimistic_asymmetric", "soft_asymmetric"
"""How rewards are shaped, see `losses.shaped`."""


@dataclasses.dataclass(frozen=True)
class VTraceConfig(RewardConfig):
    """V-trace: the loss."""

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
    reward_shaping: str = option(
        NO_SHAPING,
        "How rewards r are squashed before scaling, for tasks whose rewards differ in scale. "
        "optimistic_asymmetric: 5 tanh(r), negative ones 0.3 tanh(r), as in the IMPALA paper; "
        "soft_asymmetric: 5 tanh(r/5), negative ones 1.5 tanh(r/5), as in the code published "
        "with it.",
        choices=(NO_SHAPING, OPTIMISTIC, SOFT),
    )
    asymmetric_rewards: bool = option(
        False, "For existing scripts: the same as --reward_shaping=optimistic_asymmetric."
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
    action_persistence: float = option(
        1.0,
        "Exploration, in the last quarter of the training environments: mean number of steps for "
        "which an undecided policy keeps an action before it draws again. Needs actions that are "
        "one discrete choice. 1: actions are sampled independently.",
        minimum=1.0,
        maximum=1e6,
    )
    kl_cost: float = option(0.0, "Weight of KL(behaviour policy || learner's policy).", minimum=0.0)
    trust_region: float | None = option(
        None,
        "Largest divergence KL(pi || pi_mu) in nats, from the policy to the one that V-trace "
        "evaluates, at which a state counts in the policy and value losses; where it is "
        "exceeded, targets bootstrap. For replayed unrolls. Default: no bound.",
        minimum=0.0,
    )
    popart: bool = option(
        False,
        "Whether the network predicts values normalized by the statistics of their targets, for "
        "rewards of any scale.",
        network=True,
    )
    block_inference_on_training: bool = option(
        False,
        "Whether inference waits while a training step runs, so that all new steps use the new "
        "weights: slower, and with one actor repeatable.",
    )
    popart_beta: float = option(
        3e-4,
        "With popart: weight of a batch in the moving averages of the statistics.",
        minimum=1e-8,
        maximum=1.0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.asymmetric_rewards and self.reward_shaping == SOFT:
            raise UserError(
                f"--asymmetric_rewards is --reward_shaping={OPTIMISTIC}, which contradicts "
                f"--reward_shaping={SOFT}. Leave out --asymmetric_rewards."
            )

    @property
    def shaping(self) -> str:
        """How rewards are shaped, according to either option."""
        return OPTIMISTIC if self.asymmetric_rewards else self.reward_shaping


@dataclasses.dataclass(frozen=True)
class VTraceReplayConfig(Checked):
    """V-trace: replay (LASER)."""

    replay_ratio: int = option(
        0,
        "Replayed unrolls for each new one: a training step takes batch_size new unrolls and "
        "replay_ratio times as many from the replay. 0: no replay.",
        minimum=0,
    )
    replay_buffer_size: int = option_of(ReplayConfig, "replay_buffer_size")
    replay_compression_level: int = option_of(ReplayConfig, "replay_compression_level")
    replay_memory_gb: float | None = option_of(ReplayConfig, "replay_memory_gb")
    replay_assumed_compression: float = option_of(ReplayConfig, "replay_assumed_compression")
    save_replay: str = option_of(ReplayConfig, "save_replay")

    def replay(self) -> ReplayConfig:
        """A uniform replay in which nothing waits: each batch includes its new unrolls."""
        options = {**vars(self), "replay_ratio": 0.0, "replay_buffer_min_size": 1}
        return ReplayConfig(priority_exponent=0.0, importance_sampling_exponent=0.0, **options)
