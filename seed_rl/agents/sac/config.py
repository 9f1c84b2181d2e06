"""Options of the SAC agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.learner_config import LearnerConfig, RewardConfig
from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.config.options import option, refuse_unused
from seed_rl.common.config.replay_config import HindsightConfig, ReplayConfig, validate_warm_up
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError

BOOTSTRAP_V, BOOTSTRAP_Q = "v", "q"


@dataclasses.dataclass(frozen=True)
class SACConfig(RewardConfig):
    """SAC: the loss."""

    bootstrap_net: str = option(
        BOOTSTRAP_Q,
        "Target network from which Q bootstraps: the critics (q) with an action of the current "
        "policy, or the state value V (v). V is only trained for this, and for actions without a "
        "gradient (discrete ones).",
        choices=(BOOTSTRAP_V, BOOTSTRAP_Q),
    )
    dropped_quantiles_per_critic: int = option(
        2,
        "With n_quantiles above 1: number of largest quantiles per critic that targets leave "
        "out. The more, the lower the estimates.",
        minimum=0,
    )
    target_update_tau: float = option(
        0.005,
        "Fraction of the distance that the target network moves towards the network at each "
        "update. 1: it becomes a copy.",
        minimum=0.0,
        maximum=1.0,
    )
    update_target_every_n_step: int = option(
        1, "Training steps between updates of the target network.", minimum=1
    )
    entropy_cost: float = option(
        1.0, "Weight of the entropy (the temperature alpha), or its initial value.", minimum=1e-6
    )
    entropy_cost_adjustment_speed: float = option(
        1.0,
        "Speed at which the entropy cost is adjusted to reach the target entropy, relative to "
        "the learning rate. 0: the entropy cost is fixed.",
        minimum=0.0,
    )
    target_entropy: float | None = option(
        None,
        "Target entropy in nats. Default: -1 per component of a continuous action; for each "
        "discrete choice, half of its largest entropy (among allowed alternatives, if actions "
        "are masked).",
    )


@dataclasses.dataclass(frozen=True)
class SACNetworkConfig(MLPNetworkConfig):
    """Networks: actor, critics and V, each with its own layers."""

    mlp_sizes: tuple[int, ...] = option(
        (256, 256), "Units of the dense layers.", minimum=1, network=True
    )
    n_critics: int = option(
        2,
        "Number of critics; the smallest of their values is used (clipped double Q), or, with "
        "n_quantiles above 1, all of their quantiles.",
        minimum=1,
        network=True,
    )
    n_quantiles: int = option(
        1,
        "Quantiles of the return that each critic predicts (TQC: 25). 1: only its mean.",
        minimum=1,
        network=True,
    )


def check_quantiles(config: SACConfig, quantiles: int) -> None:
    """Refuses options that do not fit critics with this many quantiles.

    Raises:
      UserError: naming the options to change.
    """
    if quantiles > 1 and config.bootstrap_net != BOOTSTRAP_Q:
        raise UserError(
            f"--n_quantiles={quantiles} learns the distribution of returns from that of the next "
            "step, which only the critics predict. Set --bootstrap_net=q."
        )
    if 1 < quantiles <= config.dropped_quantiles_per_critic:
        raise UserError(
            f"--dropped_quantiles_per_critic={config.dropped_quantiles_per_critic} leaves none of "
            f"--n_quantiles={quantiles}. Lower the former or raise the latter."
        )


def refuse_unused_target(config: SACConfig) -> None:
    """Refuses --target_entropy if the entropy cost is fixed.

    Raises:
      UserError: the flag was set.
    """
    if not config.entropy_cost_adjustment_speed:
        why = "--entropy_cost_adjustment_speed=0 keeps the entropy cost fixed"
        refuse_unused(("target_entropy",), why)


def kept_length(learner: LearnerConfig, hindsight: HindsightConfig) -> int:
    """Steps of an unroll in the replay, not counting the bootstrap step."""
    return hindsight.her_window_length or learner.unroll_length


def updates_per_step(
    learner: LearnerConfig, replay: ReplayConfig, hindsight: HindsightConfig
) -> float:
    """Gradient steps per agent step that --replay_ratio asks for; 0: no ratio is kept."""
    return replay.replay_ratio / (kept_length(learner, hindsight) * learner.batch_size)


def validate(
    run: RunConfig,
    learner: LearnerConfig,
    replay: ReplayConfig,
    hindsight: HindsightConfig,
    *,
    learners: int = 1,
) -> None:
    """Checks the options against each other, for a number of learners that train together.

    Raises:
      UserError: naming the options to change.
    """
    window, length = hindsight.her_window_length, learner.unroll_length
    if 0 < window < length:
        raise UserError(
            f"--her_window_length={window} is shorter than --unroll_length={length}: windows have "
            "no part of that length. Raise the former or lower the latter."
        )
    if window and run.num_action_repeats > 1:
        raise UserError(
            f"--num_action_repeats={run.num_action_repeats} with --her_window_length={window}: "
            "the reward of another goal between two observations is unknown. Leave out "
            "--num_action_repeats, or set --her_window_length=0."
        )
    unroll_frames = kept_length(learner, hindsight) * run.num_action_repeats
    validate_warm_up(replay, learner, unroll_frames, learners)
    if not window:
        refuse_unused(("her_substitution_probability",), "--her_window_length=0 replaces no goals")
    if replay.priority_exponent:
        raise UserError(
            f"--priority_exponent={replay.priority_exponent}: SAC samples uniformly. Set it to 0."
        )
    refuse_unused(("importance_sampling_exponent",), "SAC samples uniformly")
