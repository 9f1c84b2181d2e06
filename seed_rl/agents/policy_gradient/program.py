"""Main program of learners and actors of the on-policy agent, for any environment."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from seed_rl.agents.policy_gradient.config import OnPolicyConfig
from seed_rl.agents.policy_gradient.modules.minibatch_settings import MinibatchSettings
from seed_rl.common.acting import program
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config import options
from seed_rl.common.config.familiar_names import SAME
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.presets import Preset
from seed_rl.common.config.run_config import RunConfig


def create_agent(
    action_space: Any, observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the gin config describes; which part does depends on the observations."""
    del action_space
    from seed_rl.agents.policy_gradient import networks  # Actors must not import TensorFlow.

    return networks.create_network(observation_space, parametric_action_distribution)


def main(
    family: EnvironmentFamily,
    create_agent: Callable[[Any, Any, Any], Any] = create_agent,
    create_optimizer: Callable[[int], Any] | None = None,
    algorithm: Callable[[], type] | None = None,
    agent_configs: tuple[type, ...] = (),
    presets: Sequence[Preset] = (),
    gin_modules: Sequence[str] = (),
    argv: Sequence[str] | None = None,
    **defaults: Any,
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      create_agent: `create_agent(action_space, observation_space, parametric_action_distribution)`
        returns the network. Called only in the learner, so it should import TensorFlow itself.
      create_optimizer: `create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn);
        by default, the gin bindings of `OptimizerConfig` configure one.
      algorithm: returns `PolicyGradient` or a subclass with the same constructor arguments. Called
        only in the learner, so it should import TensorFlow itself.
      agent_configs: further dataclasses of options.
      presets: defaults that replace those of the dataclasses, applied in order; one of them should
        set `gin_config`.
      gin_modules: modules that register further parts for gin configs; imported only in the
        learner.
      argv: name of the program, then flags; None: the command line.
      **defaults: further defaults of this program, applied last.
    """

    def learn(env_config: Any) -> None:
        from seed_rl.agents.policy_gradient import gin_config, gin_record
        from seed_rl.agents.policy_gradient.algorithm import PolicyGradient, create_job

        for module in gin_modules:
            importlib.import_module(module)
        config = options.from_flags(OnPolicyConfig)
        saved = gin_record.saved_config(options.from_flags(RunConfig).logdir)
        gin_record.load(config, saved)
        with gin_config.errors_for_users():
            job = create_job(
                family.create,
                create_agent,
                create_optimizer,
                create_loss=gin_config.create_loss,
                on_policy=config,
                continuous=gin_config.continuous_action_config(),
                optimizer=gin_config.optimizer_config(),
                env_config=env_config,
                algorithm=algorithm() if algorithm else PolicyGradient,
            )
        gin_record.record(job, saved).execute()

    parameters = {field.name: field.name for field in dataclasses.fields(OptimizerConfig)}
    parameters |= {foreign: ours for foreign, ours in SAME.items() if ours in parameters}
    instead = {
        **{name: f"OptimizerConfig.{ours}" for name, ours in parameters.items()},
        **dict.fromkeys(("gamma", "discounting"), "GeneralizedOnPolicyLoss.discount_factor"),
        **dict.fromkeys(("gae_lambda", "lambda_"), "GAE.lambda_"),
        **dict.fromkeys(("clip_range", "clip_coef", "clip_param"), "ppo.epsilon"),
    }
    instead = {name: f"--gin_bindings={binding}=..." for name, binding in instead.items()}
    configs = (OnPolicyConfig, MinibatchSettings, *agent_configs)
    program.main(
        family,
        configs,
        learn,
        presets=presets,
        optimizer=None,
        argv=argv,
        agent="ppo",
        instead=instead,
        **defaults,
    )
