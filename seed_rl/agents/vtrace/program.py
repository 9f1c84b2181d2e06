"""Main program of V-trace learners and actors, for any environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.acting import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.presets import Preset


def main(
    family: EnvironmentFamily,
    create_agent: Callable[[Any, Any, Any], Any],
    create_optimizer: Callable[[int], Any] | None = None,
    algorithm: Callable[[], type] | None = None,
    agent_configs: tuple[type, ...] = (),
    presets: Sequence[Preset] = (),
    argv: Sequence[str] | None = None,
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      create_agent: `create_agent(action_space, observation_space, parametric_action_distribution)`
        returns the network. Called only in the learner, so it should import TensorFlow itself.
      create_optimizer: `create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn);
        by default, the flags of `OptimizerConfig` configure one.
      algorithm: returns `VTrace` or a subclass with the same constructor arguments. Called only in
        the learner, so it should import TensorFlow itself.
      agent_configs: further dataclasses of options.
      presets: defaults that replace those of the dataclasses, applied in order. V-trace has no
        preset of its own.
      argv: name of the program, then flags; None: the command line.
      **defaults: further defaults of this program, applied last.
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
    program.main(family, configs, learn, presets=presets, argv=argv, agent="vtrace", **defaults)
