"""V-trace on DeepMind Lab: the learner (--run_mode=learner) or an actor (--run_mode=actor).

All of DMLab-30 as in the IMPALA paper: --flagfile=seed_rl/dmlab/impala_dmlab30.flags
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seed_rl.agents.vtrace import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.network_config import ConvNetworkConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.presets import Preset
from seed_rl.common.learner.optimizer import create_optimizer  # noqa: F401  For programs.
from seed_rl.compat import old_flags
from seed_rl.dmlab import environment

TRANSITIONS = 100 * 32
"""Transitions of a batch in the paper, whose loss is their sum; ours is their mean."""

PRESET = Preset(
    "dmlab vtrace",
    dict(
        total_environment_frames=1_000_000_000,
        torso="impala_deep",
        compute_dtype="auto",
        lstm_sizes=(256,),
        stack_size=1,
        unroll_length=100,
        batch_size=32,
        discounting=0.99,
        baseline_cost=0.5,
        max_abs_reward=1.0,
        # The paper searches both. These are the defaults of the code published with it.
        entropy_cost=0.00025,
        learning_rate=0.00048,
        learning_rate_decay=True,
        optimizer="rmsprop",
        rmsprop_decay=0.99,
        rmsprop_momentum=0.0,
        # These give the same updates with a loss that is a mean.
        optimizer_epsilon=0.1 / TRANSITIONS**2,
        clip_norm=40.0 / TRANSITIONS,
    ),
)
"""The IMPALA paper on one level (Espeholt et al. 2018, appendix D); docs/environments/dmlab.md has
the differences."""

FAMILY = EnvironmentFamily(
    environment.DmlabConfig, environment.create_environment, environment="game", images=True
)


def create_agent(
    action_space: Any, env_observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the flags describe."""
    del action_space
    from seed_rl.dmlab import networks  # Actors must not import TensorFlow.

    return networks.create_network(
        env_observation_space, parametric_action_distribution, from_flags(ConvNetworkConfig)
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the learner or an actor, depending on --run_mode."""
    old_flags.provide()  # Scripts of the original pass them.
    program.main(
        FAMILY,
        create_agent,
        agent_configs=(ConvNetworkConfig,),
        presets=(PRESET,),
        argv=argv,
    )


if __name__ == "__main__":
    main()
