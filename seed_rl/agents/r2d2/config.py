"""Options of the R2D2 agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.learner_config import LearnerConfig, RewardConfig
from seed_rl.common.config.network_config import TorsoConfig
from seed_rl.common.config.options import option, refuse_unused
from seed_rl.common.config.replay_config import ReplayConfig, validate_warm_up
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@dataclasses.dataclass(frozen=True)
class R2D2Config(RewardConfig):
    """R2D2: acting and learning, with library defaults from the paper."""

    discounting: float = option(0.997, "Discount factor per agent step.", minimum=0.0, maximum=1.0)
    n_steps: int = option(5, "Rewards per n-step target, before bootstrapping.", minimum=1)
    trace_lambda: float = option(
        0.0,
        "Above 0, targets are soft Watkins Q(lambda) returns with this lambda instead of n-step "
        "returns: --n_steps is not used.",
        minimum=0.0,
        maximum=1.0,
    )
    trace_tolerance: float = option(
        0.01,
        "Kappa of Q(lambda): returns continue past an action if its value is at most kappa "
        "|max Q| below max Q.",
        minimum=0.0,
    )
    burn_in: int = option(
        40,
        "Steps at the beginning of an unroll that only update the recurrent state. An unroll has "
        "burn_in + unroll_length + 1 steps.",
        minimum=0,
    )
    update_target_every_n_step: int = option(
        2500, "Training steps between updates of the target network.", minimum=1
    )
    value_function_rescaling: bool = option(
        True,
        "Whether the network predicts h(Q) = sign(Q)(sqrt(|Q| + 1) - 1) + epsilon Q.",
        network=True,
    )
    value_function_rescaling_epsilon: float = option(
        1e-3, "Epsilon of h.", minimum=0.0, network=True
    )
    priority_eta: float = option(
        0.9,
        "Priority of an unroll: eta max|TD error| + (1 - eta) mean|TD error|.",
        minimum=0.0,
        maximum=1.0,
    )
    eval_epsilon: float = option(
        1e-3, "Probability of a random action during evaluation.", minimum=0.0, maximum=1.0
    )


@dataclasses.dataclass(frozen=True)
class QNetworkConfig(TorsoConfig):
    """Network: convolutions for images or an MLP for vectors, LSTM, dueling heads."""

    lstm_size: int = option(
        512,
        "Units of the LSTM, whose input includes the last action and reward; 0: no LSTM.",
        minimum=0,
        network=True,
    )
    head_size: int = option(
        512,
        "Units of the hidden layer in each of the value and advantage heads.",
        minimum=1,
        network=True,
    )
    mlp_sizes: tuple[int, ...] = option(
        (256,), "Units of the dense layers for non-image observations.", minimum=1, network=True
    )


def validate(
    run: RunConfig,
    learner: LearnerConfig,
    r2d2: R2D2Config,
    replay: ReplayConfig,
    *,
    learners: int = 1,
) -> None:
    """Checks the options against each other, for a number of learners that train together.

    Raises:
      UserError: naming the options to change.
    """
    if not r2d2.trace_lambda and learner.unroll_length < r2d2.n_steps:
        raise UserError(
            f"--unroll_length={learner.unroll_length} is shorter than --n_steps={r2d2.n_steps}: "
            "no return would have its full length. Raise the former or lower the latter."
        )
    validate_warm_up(replay, learner, learner.unroll_length * run.num_action_repeats, learners)
    if r2d2.trace_lambda:
        refuse_unused(("n_steps",), "--trace_lambda uses λ-returns")
    else:
        refuse_unused(("trace_tolerance",), "--trace_lambda=0 uses n-step returns")
    if not r2d2.value_function_rescaling:
        refuse_unused(("value_function_rescaling_epsilon",), "--novalue_function_rescaling")
    if not replay.priority_exponent:
        unused = ("priority_eta", "importance_sampling_exponent")
        refuse_unused(unused, "--priority_exponent=0 samples uniformly")
