"""PQN as an `Algorithm`, and the job that trains it.

The training step is the on-policy agent's: `minibatches.train` computes the targets once, then goes
through epochs of minibatches.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.agents.policy_gradient.algorithm import PolicyGradient
from seed_rl.agents.policy_gradient.config import MinibatchSettings, StepConfig, settled_sizes
from seed_rl.agents.policy_gradient.modules.generalized_onpolicy_loss import (
    GeneralizedOnPolicyLoss,
)
from seed_rl.agents.pqn.config import PQNConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.inference.exploration import explore
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner.algorithm import AlgorithmContext, CreateAgent
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob, make_job
from seed_rl.common.nest import Nest
from seed_rl.common.normalization import replicated
from seed_rl.common.returns.advantages import GAE
from seed_rl.common.types import EnvOutput


class QLoss(GeneralizedOnPolicyLoss):
    """Half the squared distance of Q(s, a) from its Q(lambda) return, averaged over transitions.

    The returns are the targets of GAE with V(s) = max_a Q(s, a), the network's baseline:
    G_t = r_t + gamma ((1 - lambda) V(s_{t+1}) + lambda G_{t+1}).
    """

    def __init__(self, network: tf.Module, distribution: ParametricDistribution, config: PQNConfig):
        """A loss of `network`, see `PQN`."""
        super().__init__(
            network,
            reward_normalizer=None,
            parametric_action_distribution=distribution,
            advantage_estimator=GAE(config.trace_lambda),
            policy_loss=None,
            discount_factor=config.discounting,
            max_abs_reward=config.max_abs_reward,
            baseline_cost=0.5,
            reward_scaling=config.reward_scaling,
        )

    def _loss(
        self,
        learned: Any,
        acted: Any,
        targets: tf.Tensor,
        advantages: tf.Tensor | None,
        mask: tf.Tensor,
    ) -> tf.Tensor:
        del advantages
        taken = self._distribution.action_features(acted.action) > 0  # From one-hot.
        q_values = learned.policy_logits  # Not a product: Q-values of masked actions are -inf.
        q_taken = tf.reduce_sum(tf.where(taken, q_values, tf.zeros_like(q_values)), -1)
        return self._baseline_cost * self._value_loss(q_taken, q_taken, targets, mask)


class PQN(PolicyGradient):
    """Q(lambda) from fresh unrolls, without replay and target network (Gallici et al. 2024).

    Training environments take random actions with a probability epsilon that falls linearly.
    """

    def __init__(
        self,
        config: PQNConfig,
        settings: MinibatchSettings,
        context: AlgorithmContext,
        block_inference_on_training: bool = True,
    ):
        """See `PolicyGradient`. `policy_logits` of networks are Q-values, `baseline` the largest.

        Raises:
          UserError: actions that are not discrete.
        """
        context.discrete_actions("PQN")
        self.config = config
        training_steps = context.config.final_train_step(context.run)
        self._exploration_steps = config.exploration_fraction * training_steps
        self._step_frames = context.config.frames_per_step(context.run)
        self._uncounted_steps = 0.0

        def create_exploring(*arguments: Any) -> tf.Module:
            network: Any = context.create_agent_fn(*arguments)
            # Part of the network, so that it is saved, and copied to other inference devices.
            network.epsilon = replicated.variable(np.float32(self.epsilon_after(0)), "epsilon")
            return network

        super().__init__(
            settings,
            functools.partial(QLoss, config=config),
            dataclasses.replace(context, create_agent_fn=create_exploring),
            block_inference_on_training,
        )

    def epsilon_after(self, train_steps: int) -> float:
        """Epsilon of training environments after this many training steps."""
        steps, config = self._exploration_steps, self.config
        share = min((train_steps + self._uncounted_steps) / steps, 1.0) if steps else 1.0
        return config.initial_epsilon + share * (config.final_epsilon - config.initial_epsilon)

    def act(
        self,
        network: Any,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        output, agent_state = self.call(network, prev_actions, env_outputs, agent_state)
        self._check(output)
        evaluated = env_ids >= self._num_training_envs
        epsilons = tf.where(evaluated, self.config.eval_epsilon, network.epsilon)
        output = output._replace(action=self._explored(output.policy_logits, epsilons))
        return Acted(output.action, output, agent_state)

    def evaluate(
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        # As in evaluation environments, because a greedy agent may do nothing for a whole episode.
        output, agent_state = self.call(self.network, prev_actions, env_outputs, agent_state)
        return self._explored(output.policy_logits, self.config.eval_epsilon), agent_state

    def before_first_step(self, train_steps: int) -> None:
        # Weights of another run bring along its epsilon.
        super().before_first_step(train_steps)
        if self.start_frames is not None:
            # Those before this learner may have been steps of other sizes.
            self._uncounted_steps = self.start_frames / self._step_frames - train_steps
        self._epsilon.assign(self.epsilon_after(train_steps))

    def after_step(self, feedback: Nest, train_steps: int) -> None:
        super().after_step(feedback, train_steps)
        self._epsilon.assign(self.epsilon_after(train_steps))

    def logs(self) -> dict[str, Any]:
        return {"train/epsilon": float(self._epsilon.numpy()), **super().logs()}

    @property
    def _epsilon(self) -> Any:
        network: Any = self.network
        return network.epsilon

    def _explored(self, q_values: tf.Tensor, epsilons: float | tf.Tensor) -> tf.Tensor:
        """Greedy actions [batch], or random ones with a probability: one for all, or [batch]."""
        n = q_values.shape[-1]
        choices = explore(tf.argmax(q_values, -1, tf.int32), epsilons, n, q_values)
        return self.distribution.mode(tf.one_hot(choices, n))


def create_job(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    pqn: PQNConfig | None = None,
    step: StepConfig | None = None,
    settings: MinibatchSettings | None = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    algorithm: type[PQN] = PQN,
    **options: Any,
) -> TrainingJob:
    """Assembles PQN, environment and devices; `create_job(...).execute()` trains.

    The first arguments, `run`, `config` and `options` are those of `job.make_job`, but the
    `batch_size` of `config` is not used. The network is that of `PQN`. Options of the agent are by
    default those of the flags. A subclass as `algorithm` has the same constructor arguments.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    pqn = pqn or from_flags(PQNConfig)
    settings = settings or from_flags(MinibatchSettings)
    step, sized, config = settled_sizes(step, settings, run, config, options.get("device_config"))

    def create_algorithm(context: AlgorithmContext) -> PQN:
        return algorithm(pqn, sized, context, step.block_inference_on_training)

    return make_job(
        create_env_fn,
        create_agent_fn,
        create_algorithm,
        create_optimizer_fn,
        run=run,
        config=config,
        agent_options=(pqn, step, settings),
        **options,
    )
