"""R2D2 as an `Algorithm`, and the job that trains it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.r2d2 import losses
from seed_rl.agents.r2d2.config import R2D2Config, validate
from seed_rl.agents.r2d2.networks import AgentOutput
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference.exploration import explore
from seed_rl.common.inference.inference import initialize
from seed_rl.common.inference.network_calls import call_network, check_output
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import replicas
from seed_rl.common.learner.algorithm import AlgorithmContext, CreateAgent, StepResult
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob, make_job
from seed_rl.common.learner.replay_algorithm import ReplayAlgorithm, replay_specs
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Unroll


class R2D2(ReplayAlgorithm):
    """Recurrent double Q-learning from a prioritized replay (Kapturowski et al. 2019).

    The replay keeps the index of the action taken as `agent_outputs`, <int32>[time].
    """

    def __init__(self, config: R2D2Config, replay_config: ReplayConfig, context: AlgorithmContext):
        """Creates both networks and the replay; call it in the scope of the training strategy.

        The networks of `context` return `AgentOutput(action, q_values)`.

        Raises:
          UserError: actions that are not discrete, or a replay that would not fit into memory.
        """
        actions = context.discrete_actions("R2D2")
        self.config = config
        self.specs = context.specs
        self._create_network = context.create_network
        self._num_eval_envs = context.run.num_eval_envs
        self._num_training_envs = context.run.training_envs
        self._num_actions = int(actions.n)
        self._first_action = int(actions.start)
        self._action_dtype = self.specs.action.dtype
        self.num_overlapping_steps = config.burn_in
        self.network = context.create_network()
        self.target_network = context.create_network()
        for network in (self.network, self.target_network):
            initialize(self, network, self.specs)
        num_steps = config.burn_in + context.config.unroll_length + 1
        kept_action = tf.TensorSpec([], tf.int32)
        kept_specs = replay_specs(self.network, self.specs, kept_action, num_steps)
        period = config.update_target_every_n_step
        super().__init__(replay_config, kept_specs, context.run.seed, period)

    def make_network(self) -> tf.Module:
        return self._create_network()

    def act(
        self,
        network: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        output, agent_state = call_network(
            network, self._to_choices(prev_actions), env_outputs, agent_state
        )
        self._check(output)
        choices = losses.apply_epsilon_greedy(
            tf.cast(output.action, tf.int32),
            env_ids,
            self._num_training_envs,
            self._num_eval_envs,
            self.config.eval_epsilon,
            self._num_actions,
            output.q_values,
        )
        recorded = AgentOutput(choices, output.q_values)
        return Acted(self._to_actions(choices), recorded, agent_state)

    def _check(self, output: Any) -> None:
        """Refuses outputs that would act or train in an unintended way, or not at all."""
        form, floats = (
            "AgentOutput(action, q_values) of seed_rl.agents.r2d2.networks",
            ("q_values",),
        )
        check_output(output, form, required=AgentOutput._fields, float32=floats)
        q_values, n = output.q_values, self._num_actions
        if not q_values.shape.is_compatible_with([None, n]):
            raise UserError(
                f"The network's q_values are {q_values.shape}, but must be [batch, {n}], one for "
                "each action."
            )

    def evaluate(
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        choices = self._to_choices(prev_actions)
        output, agent_state = call_network(self.network, choices, env_outputs, agent_state)
        # As in evaluation environments, because a greedy agent may do nothing for a whole episode.
        choices = explore(
            tf.cast(output.action, tf.int32),
            self.config.eval_epsilon,
            self._num_actions,
            output.q_values,
        )
        return self._to_actions(choices), agent_state

    def initial_priorities(self, unrolls: Unroll) -> tf.Tensor:
        # As after training, but with the acting network's Q-values in both roles.
        rewards = self.learning_rewards(unrolls.env_outputs)
        env_outputs = unrolls.env_outputs._replace(observation=(), reward=rewards)
        env_outputs, outputs = tf.nest.map_structure(
            lambda t: t[self.config.burn_in :], (env_outputs, unrolls.agent_outputs)
        )
        q_values = outputs.q_values
        td = losses.td_errors(self.config, q_values, q_values, env_outputs, outputs.action)
        return losses.priorities(td, self.config.priority_eta)

    def loss(self, batch: SampledUnrolls) -> StepResult:
        unrolls = batch.unrolls
        td = losses.replay_errors(
            self.config,
            self.network,
            self.target_network,
            unrolls.agent_state,
            self._to_choices(unrolls.prev_actions),
            unrolls.env_outputs,
            unrolls.agent_outputs,
            self.learning_rewards(unrolls.env_outputs),
        )
        priorities = losses.priorities(td, self.config.priority_eta)
        weights = batch.importance_weights / replicas.maximum(batch.importance_weights)
        loss = tf.reduce_mean(weights * losses.unroll_losses(td))
        mean, sizes = replicas.BatchMean(td.mask), tf.abs(td.errors)
        metrics = {
            "q/value": mean(td.q_values),
            "q/target": mean(td.targets),
            "q/abs_td_error": mean(sizes),
            "q/max_abs_td_error": replicas.maximum(sizes),
            "replay/importance_weight": tf.reduce_mean(weights),
        }
        metrics = {name: tf.stop_gradient(value) for name, value in metrics.items()}
        return StepResult(loss, metrics, (batch.indices, priorities))

    def _to_choices(self, actions: tf.Tensor) -> tf.Tensor:
        """Maps the environment's actions to indices from 0."""
        return tf.cast(actions - self._first_action, tf.int32)

    def _to_actions(self, choices: tf.Tensor) -> tf.Tensor:
        return tf.cast(choices, self._action_dtype) + self._first_action


def create_job(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    r2d2: R2D2Config | None = None,
    replay: ReplayConfig | None = None,
    algorithm: type[R2D2] = R2D2,
    **options: Any,
) -> TrainingJob:
    """Assembles R2D2, environment and devices; `create_job(...).execute()` trains.

    The first arguments and `options` are those of `job.make_job`. Options of the agent are by
    default those of the flags. A subclass as `algorithm` has the same constructor arguments.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    r2d2 = r2d2 or from_flags(R2D2Config)
    replay = replay or from_flags(ReplayConfig)

    def create_algorithm(context: AlgorithmContext) -> R2D2:
        validate(context.run, context.config, r2d2, replay, learners=context.learners)
        return algorithm(r2d2, replay, context)

    return make_job(
        create_env_fn,
        create_agent_fn,
        create_algorithm,
        create_optimizer_fn,
        agent_options=(r2d2, replay),
        **options,
    )
