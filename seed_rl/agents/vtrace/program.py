"""The program that is a V-trace learner or one of its actors, for any environment.

No TensorFlow is imported before the learner starts: actors must be small and quick to start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common import actor, config
from seed_rl.common.device_config import DeviceConfig
from seed_rl.common.distributions.config import ContinuousDistributionConfig
from seed_rl.common.game import Game
from seed_rl.common.learner_config import LearnerConfig
from seed_rl.common.optimizer import OptimizerConfig
from seed_rl.common.run_config import ACTOR, RunConfig


def main(
    game: Game,
    create_agent: Callable[[Any, Any, Any], Any],
    create_optimizer: Callable[[int], Any] | None = None,
    agent_configs: tuple[type, ...] = (),
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      game: the environments.
      create_agent: `create_agent(action_space, observation_space, parametric_action_distribution)`
        returns the network. Called in the learner only, so import TensorFlow inside of it.
      create_optimizer: `create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn);
        by default as the flags of `OptimizerConfig` say.
      agent_configs: further dataclasses of options to define flags for.
      **defaults: defaults of options that differ for this program.
    """
    config.define_flags(
        RunConfig,
        actor.ActorConfig,
        game.config,
        VTraceConfig,
        OptimizerConfig,
        *agent_configs,
        LearnerConfig,
        ContinuousDistributionConfig,
        DeviceConfig,
        **defaults,
    )

    def run() -> None:
        game_config: Any = config.from_flags(game.config)
        if config.from_flags(RunConfig).run_mode == ACTOR:
            actor.actor_loop(
                game.create,
                config.from_flags(actor.ActorConfig),
                game_config,
                create_vector_env_fn=game.create_batch,
            )
            return
        from seed_rl.agents.vtrace import learner

        learner.learner_loop(
            game.create,
            create_agent,
            create_optimizer,
            env_config=game_config,
            run=config.from_flags(RunConfig),
            config=config.from_flags(LearnerConfig),
            vtrace=config.from_flags(VTraceConfig),
            optimizer=config.from_flags(OptimizerConfig),
            continuous=config.from_flags(ContinuousDistributionConfig),
            device_config=config.from_flags(DeviceConfig),
        )

    config.run_main(run)
