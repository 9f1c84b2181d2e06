"""Every agent on environments of any kind: their spaces decide the networks.

    FAMILY = EnvironmentFamily(MyConfig, create_environment)

    if __name__ == "__main__":
        agents.main(FAMILY)

is a program whose agent `--agent=vtrace|r2d2|ppo|pqn|sac` selects. No TensorFlow here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.policy_gradient import program as policy_gradient
from seed_rl.agents.pqn import program as pqn
from seed_rl.agents.r2d2 import program as r2d2
from seed_rl.agents.sac import program as sac
from seed_rl.agents.vtrace import program as vtrace
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.options import UserError
from seed_rl.common.config.presets import Preset

VTRACE = Preset(
    "gym vtrace",
    dict(
        total_environment_frames=5_000_000,
        stack_size=1,
        batch_size=8,
        learning_rate=1e-3,
        # A good policy yields tiny gradients, which Adam turns into full steps. The KL cost bounds
        # them; without it, CartPole collapses repeatedly.
        kl_cost=10.0,
        # Rewards are not normalized: keeps value gradients from dominating those of the policy.
        baseline_cost=0.1,
        mlp_activation="tanh",
    ),
)
"""Tuned on CartPole-v1, see docs/agents/vtrace.md."""

R2D2 = Preset(
    "gym r2d2",
    dict(
        total_environment_frames=2_000_000,
        batch_size=32,
        replay_buffer_size=20_000,
        replay_buffer_min_size=200,
        replay_ratio=4.0,
        update_target_every_n_step=200,
        learning_rate=5e-4,
        optimizer_epsilon=1e-3,
        lstm_size=64,
        head_size=64,
        mlp_sizes=(64,),
        stack_size=1,
    ),
)
"""Small networks and a small replay, for environments such as CartPole; see docs/agents/r2d2.md."""

PPO = Preset(
    "gym ppo",
    dict(
        total_environment_frames=1_000_000,
        gin_config=("seed_rl/gym/gin/ppo.gin",),
        entropy_cost=0.01,
        learning_rate=2.5e-3,
        learning_rate_decay=False,
        clip_norm=0.5,
        mlp_activation="tanh",
        stack_size=1,
        unroll_length=32,
        batch_mode="split",
        epochs_per_step=4,
        batches_per_step=4,
    ),
)
"""For small environments such as CartPole-v1, see docs/agents/policy_gradient.md."""

PQN = Preset(
    "gym pqn",
    dict(
        total_environment_frames=500_000,
        trace_lambda=0.95,
        final_epsilon=0.1,
        exploration_fraction=0.2,
        reward_scaling=0.1,
        learning_rate=5e-4,
        epochs_per_step=4,
        mlp_sizes=(128, 128),
        stack_size=1,
    ),
)
"""For small environments such as CartPole-v1, see docs/agents/pqn.md."""

SAC = Preset(
    "gym sac",
    dict(
        total_environment_frames=200_000,
        replay_buffer_size=100_000,
        replay_buffer_min_size=1_000,
        learning_rate=1e-3,
    ),
)
"""For Pendulum-v1, see docs/agents/sac.md."""


AGENTS: dict[str, tuple[Callable[..., None], Preset]] = {
    "vtrace": (vtrace.main, VTRACE),
    "r2d2": (r2d2.main, R2D2),
    "ppo": (policy_gradient.main, PPO),
    "pqn": (pqn.main, PQN),
    "sac": (sac.main, SAC),
}
"""Of each agent, its `program.main` and the defaults for small environments."""


def run(
    agent: str, family: EnvironmentFamily, argv: Sequence[str] | None = None, **arguments: Any
) -> None:
    """Runs the learner or an actor of one agent, depending on --run_mode; does not return.

    Args:
      agent: a key of `AGENTS`.
      family: the environments.
      argv: name of the program, then flags; None: the command line.
      **arguments: of the agent's `program.main`, such as `create_agent` or defaults of options.
    """
    program_main, preset = AGENTS[agent]
    program_main(family, presets=(preset,), argv=argv, **arguments)


def main(family: EnvironmentFamily, argv: Sequence[str] | None = None, **defaults: Any) -> None:
    """Runs the learner or an actor of the agent that --agent names; does not return.

    Args:
      family: the environments.
      argv: name of the program, then flags; None: the command line.
      **defaults: defaults of options that all agents used have, and `callbacks`.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--agent", "-agent", default=next(iter(AGENTS)))
    agent = parser.parse_known_args((argv or sys.argv)[1:])[0].agent
    if agent not in AGENTS:
        names = ", ".join(AGENTS)
        print(f"error: --agent must be one of {names}, not '{agent}'.", file=sys.stderr)
        sys.exit(UserError.exit_code)
    run(agent, family, argv, **defaults)
