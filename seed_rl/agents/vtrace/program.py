"""The program that is a V-trace learner or one of its actors, for any environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.acting import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig


def main(
    family: EnvironmentFamily,
    create_agent: Callable[[Any, Any, Any], Any],
    create_optimizer: Callable[[int], Any] | None = None,
    algorithm: Callable[[], type] | None = None,
    agent_configs: tuple[type, ...] = (),
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      create_agent: `create_agent(action_space, observation_space, parametric_action_distribution)`
        returns the network. Called in the learner only, so import TensorFlow inside of it.
      create_optimizer: `create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn);
        by default as the flags of `OptimizerConfig` say.
      algorithm: returns `VTrace` or a subclass, made with the same arguments. Called in the learner
        only, so import TensorFlow inside of it.
      agent_configs: further dataclasses of options to define flags for.
      **defaults: defaults of options that differ for this program.
    """

    def learn(env_config: Any) -> None:
        from seed_rl.agents.vtrace.algorithm import VTrace, create_job

        create_job(
            family.create,
            create_agent,
            create_optimizer,
            env_config=env_config,
            algorithm=algorithm() if algorithm else VTrace,
        ).execute()

    configs = (VTraceConfig, *agent_configs, ContinuousDistributionConfig)
    program.main(family, configs, learn, **defaults)
