"""The configurable on-policy agent as an `Algorithm`, and the job that trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.policy_gradient.config import (
    MinibatchSettings,
    OnPolicyConfig,
    StepConfig,
    settled_sizes,
)
from seed_rl.agents.policy_gradient.modules import minibatches
from seed_rl.agents.policy_gradient.modules.generalized_onpolicy_loss import (
    GeneralizedOnPolicyLoss,
)
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.learner import variables
from seed_rl.common.learner.actor_critic import ActorCriticAlgorithm
from seed_rl.common.learner.algorithm import AlgorithmContext, CreateAgent, Minimize, StepResult
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob, make_job
from seed_rl.common.types import Unroll

CreateLoss = Callable[[tf.Module, ParametricDistribution], GeneralizedOnPolicyLoss]
"""`create_loss(network, distribution)` returns the loss, including all its parts."""


class PolicyGradient(ActorCriticAlgorithm):
    """Advantages, then epochs of minibatches (Andrychowicz et al. 2020).

    The parts of `GeneralizedOnPolicyLoss` determine the advantages and the loss of a minibatch.
    """

    def __init__(
        self,
        settings: MinibatchSettings,
        create_loss: CreateLoss,
        context: AlgorithmContext,
        block_inference_on_training: bool = True,
    ):
        """Creates network and loss, see `ActorCriticAlgorithm` and `Algorithm`.

        Raises:
          UserError: a recurrent network, whose unrolls should be split into transitions.
        """
        super().__init__(context)
        if settings.splits:
            minibatches.refuse_memory(minibatches.memory(self.network))
        self.settings = settings
        self.block_inference_on_training = block_inference_on_training
        self.updates_per_batch = settings.gradient_steps
        self.loss_module = create_loss(self.network, self.distribution)
        self.loss_module.init()

    def update(self, batch: Unroll, minimize: Minimize) -> StepResult:
        normalize = getattr(self.network, "update_observation_normalization_statistics", None)
        if normalize is not None:
            # The last step of an unroll is the first of the next.
            normalize(tf.nest.map_structure(lambda t: t[:-1], batch.env_outputs.observation))
        rewards = self.learning_rewards(batch.env_outputs)
        return minibatches.train(self.loss_module, batch, minimize, self.settings, rewards)

    def trainable_variables(self) -> list[tf.Variable]:
        return variables.trainable_variables([self.network, self.loss_module])

    def jit_pays(self, device_type: str) -> bool:
        """Small ops gain on a CPU, too: see docs/performance.md."""
        has_state = bool(tf.nest.flatten(self.network.initial_state(1)))
        convolutions = any(len(v.shape) > 2 for v in self.trainable_variables())
        small_ops = not has_state and not convolutions
        return super().jit_pays(device_type) or (device_type == "CPU" and small_ops)

    def clipped_apart(self) -> list[tf.Variable]:
        return self.loss_module.multipliers()

    def checkpointables(self) -> dict[str, Any]:
        return {"loss": self.loss_module}


def create_job(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    create_loss: CreateLoss,
    on_policy: StepConfig | None = None,
    settings: MinibatchSettings | None = None,
    continuous: ContinuousDistributionConfig | None = None,
    optimizer: OptimizerConfig | None = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    algorithm: type[PolicyGradient] = PolicyGradient,
    **options: Any,
) -> TrainingJob:
    """Assembles agent, environment and devices; `create_job(...).execute()` trains.

    All but `create_loss`, `on_policy`, `settings` and `algorithm` are arguments of `job.make_job`,
    but the `batch_size` of `config` is not used. `on_policy` and `settings` are by default those of
    the flags; `continuous` and `optimizer`, which programs configure with gin, are not. A subclass
    as `algorithm` has the same constructor arguments.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    on_policy = on_policy or from_flags(OnPolicyConfig)
    continuous = continuous or ContinuousDistributionConfig()
    settings = settings or from_flags(MinibatchSettings)
    on_policy, sized, config = settled_sizes(
        on_policy, settings, run, config, options.get("device_config")
    )

    def create_algorithm(context: AlgorithmContext) -> PolicyGradient:
        return algorithm(sized, create_loss, context, on_policy.block_inference_on_training)

    return make_job(
        create_env_fn,
        create_agent_fn,
        create_algorithm,
        create_optimizer_fn,
        continuous=continuous,
        run=run,
        config=config,
        optimizer=optimizer or OptimizerConfig(),
        agent_options=(on_policy, settings, continuous),
        **options,
    )
