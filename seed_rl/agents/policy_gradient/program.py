"""Main program of learners and actors of the on-policy agent, for any environment."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.policy_gradient.config import OnPolicyConfig
from seed_rl.agents.policy_gradient.modules.minibatch_settings import MinibatchSettings
from seed_rl.common.acting.agent_program import AgentProgram
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.familiar_names import SAME
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig


def create_agent(
    action_space: Any, observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the gin config describes; which part does depends on the observations."""
    del action_space
    from seed_rl.agents.policy_gradient import networks  # Actors must not import TensorFlow.

    return networks.create_network(observation_space, parametric_action_distribution)


def _create_job(gin_modules: Sequence[str]) -> Callable[..., Any]:
    """Returns `algorithm.create_job` with the parts that the gin config of the flags describes."""
    from seed_rl.agents.policy_gradient import algorithm, gin_config, gin_record

    def create_job(*functions: Any, **options: Any) -> Any:
        for module in gin_modules:
            importlib.import_module(module)
        config = from_flags(OnPolicyConfig)
        saved = gin_record.saved_config(from_flags(RunConfig).logdir)
        gin_record.load(config, saved)
        with gin_config.errors_for_users():
            job = algorithm.create_job(
                *functions,
                create_loss=gin_config.create_loss,
                on_policy=config,
                continuous=gin_config.continuous_action_config(),
                optimizer=gin_config.optimizer_config(),
                **options,
            )
        return gin_record.record(job, saved)

    return create_job


def main(
    family: EnvironmentFamily, *arguments: Any, gin_modules: Sequence[str] = (), **options: Any
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      *arguments: see `AgentProgram.main`. The default optimizer is that of the gin config.
      gin_modules: modules that register further parts for gin configs; imported only in the
        learner.
      **options: see `AgentProgram.main`; one of the `presets` should set `gin_config`.
    """
    parameters = {field.name: field.name for field in dataclasses.fields(OptimizerConfig)}
    parameters |= {foreign: ours for foreign, ours in SAME.items() if ours in parameters}
    instead = {
        **{name: f"OptimizerConfig.{ours}" for name, ours in parameters.items()},
        **dict.fromkeys(("gamma", "discounting"), "GeneralizedOnPolicyLoss.discount_factor"),
        **dict.fromkeys(("gae_lambda", "lambda_"), "GAE.lambda_"),
        **dict.fromkeys(("clip_range", "clip_coef", "clip_param"), "ppo.epsilon"),
    }
    instead = {name: f"--gin_bindings={binding}=..." for name, binding in instead.items()}
    program = AgentProgram(
        "ppo",
        functools.partial(_create_job, gin_modules),
        (OnPolicyConfig, MinibatchSettings),
        create_agent,
    )
    program.main(family, *arguments, optimizer=None, instead=instead, **options)
