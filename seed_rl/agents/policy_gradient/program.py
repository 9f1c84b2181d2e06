"""Main program of learners and actors of the on-policy agent, for any environment."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from seed_rl.agents.policy_gradient.config import (
    LossConfig,
    MinibatchSettings,
    OnPolicyConfig,
    settled_sizes,
)
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.acting.program import AgentProgram
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.network_config import (
    ConvNetworkConfig,
    MLPNetworkConfig,
    ObservationConfig,
)
from seed_rl.common.config.options import from_flags, refuse_unused
from seed_rl.common.config.run_config import RunConfig


def create_agent(
    action_space: Any, observation_space: Any, parametric_action_distribution: Any
) -> Any:
    """The network that the gin config describes: `ContinuousControlAgent` for vectors.

    For images, the network of the other actor-critic agents, configured by
    `ConvNetworkConfig`, `MLPNetworkConfig` and `ObservationConfig`.

    Raises:
      UserError: --normalize_observations was set, and all observations are images.
    """
    del action_space
    # Actors must not import TensorFlow.
    from seed_rl.agents.policy_gradient import gin_config
    from seed_rl.agents.policy_gradient.modules import continuous_control_agent
    from seed_rl.common.networks import network_factory, space_encoder
    from seed_rl.common.normalization import normalizer

    if not space_encoder.has_images(observation_space):
        return continuous_control_agent.ContinuousControlAgent(parametric_action_distribution)
    network = network_factory.create_network(
        observation_space,
        parametric_action_distribution,
        conv=gin_config.conv_network_config(),
        mlp=gin_config.mlp_network_config(),
    )
    if space_encoder.only_images(observation_space):
        refuse_unused(
            ["normalize_observations"],
            f"observations are images ({observation_space}), which only the torso processes",
        )
        return network
    return normalizer.normalized(network, gin_config.observation_config())


def _create_job(gin_modules: Sequence[str]) -> Callable[..., Any]:
    """Returns `algorithm.create_job` with the parts that the gin config of the flags describes."""
    from seed_rl.agents.policy_gradient import algorithm, gin_config, gin_record

    def create_job(*functions: Any, **options: Any) -> Any:
        saved, settled = _load_gin(gin_modules)
        with gin_config.errors_for_users():
            job = algorithm.create_job(
                *functions,
                create_loss=gin_config.create_loss,
                continuous=gin_config.continuous_action_config(),
                optimizer=gin_config.optimizer_config(),
                **options,
            )
        return gin_record.record(job, saved, settled)

    return create_job


def _load_gin(modules: Sequence[str]) -> tuple[Any, Any]:
    """Loads the gin config of the flags; returns that of a saved run, and what the options set."""
    from seed_rl.agents.policy_gradient import gin_options, gin_record

    for module in modules:
        importlib.import_module(module)
    saved = gin_record.saved_config(from_flags(RunConfig).logdir)
    options, typed = gin_options.of_flags(), gin_options.typed()
    return saved, gin_record.load(from_flags(OnPolicyConfig), saved, options, typed)


def _check(gin_modules: Sequence[str]) -> None:
    settled_sizes()
    # Importing the parts of gin configs loads TensorFlow, for seconds: only if the user names some.
    if any(flags.FLAGS[name].present for name in ("gin_config", "gin_bindings")):
        _load_gin(gin_modules)
    else:
        from_flags(ContinuousDistributionConfig)


def main(
    family: EnvironmentFamily, *arguments: Any, gin_modules: Sequence[str] = (), **options: Any
) -> None:
    """Parses flags and runs; does not return.

    Args:
      family: the environments.
      *arguments: see `AgentProgram.main`.
      gin_modules: modules that register further parts for gin configs; imported only in the
        learner.
      **options: see `AgentProgram.main`; one of the `presets` should set `gin_config`.
    """
    weight = "--baseline_cost=..., the weight of the squared error (CleanRL: of half of it)"
    instead = dict.fromkeys(("vf_coef", "value_loss_coeff"), weight)
    program = AgentProgram(
        "ppo",
        functools.partial(_create_job, gin_modules),
        (OnPolicyConfig, LossConfig, MinibatchSettings, ContinuousDistributionConfig),
        create_agent,
        (ObservationConfig, MLPNetworkConfig, ConvNetworkConfig),
        check=functools.partial(_check, gin_modules),
        instead=instead,
    )
    program.main(family, *arguments, **options)
