"""SAC as an `Algorithm`, and the job that trains it."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from seed_rl.agents.sac import losses
from seed_rl.agents.sac.config import (
    SACConfig,
    check_quantiles,
    kept_length,
    refuse_unused_target,
    updates_per_step,
    validate,
)
from seed_rl.agents.sac.networks import AgentOutput
from seed_rl.common.acting import goals
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.replay_config import HindsightConfig, ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.learner import variables
from seed_rl.common.learner.actor_critic import ActorCriticAlgorithm
from seed_rl.common.learner.algorithm import AlgorithmContext, CreateAgent, StepResult
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob, make_job
from seed_rl.common.learner.replay_algorithm import ReplayAlgorithm, replay_specs
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from seed_rl.common.nest import Nest
from seed_rl.common.replay import Hindsight
from seed_rl.common.types import EnvOutput


class SAC(ActorCriticAlgorithm, ReplayAlgorithm):
    """Soft actor-critic from a uniform replay (Haarnoja et al. 2018).

    The replay keeps the actions taken as `agent_outputs`.
    """

    def __init__(
        self,
        config: SACConfig,
        replay_config: ReplayConfig,
        context: AlgorithmContext,
        create_hindsight: Callable[[], Hindsight] | None = None,
    ):
        """Creates both networks and the replay; call it in the scope of the training strategy.

        The networks of `context` have the methods of `networks.ActorCriticMLP`; unrolls in the
        replay have its `unroll_length`. `create_hindsight` returns the object that relabels sampled
        batches; None: they are not relabelled.

        Raises:
          UserError: the replay would not fit into memory.
        """
        ActorCriticAlgorithm.__init__(self, context)
        self.config = config
        self._create_hindsight = create_hindsight
        self.target_network = context.create_network()
        self.temperature = losses.create_temperature(config, context.spaces.action)
        self._create_variables(self.target_network)
        self._unread = self._create_variables(self.network)
        steps = context.config.unroll_length + 1
        kept_specs = replay_specs(self.network, self.specs, self.specs.action, steps)
        target = config.update_target_every_n_step, config.target_update_tau
        ReplayAlgorithm.__init__(self, replay_config, kept_specs, context.run.seed, *target)

    def make_network(self) -> tf.Module:
        network = super().make_network()
        self._create_variables(network)
        return network

    def hindsight(self) -> Hindsight | None:
        return self._create_hindsight() if self._create_hindsight else None

    def call(
        self,
        network: tf.Module,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> tuple[Any, Nest]:
        output, new_state = super().call(network, prev_actions, env_outputs, agent_state)
        if not hasattr(output, "policy_logits"):  # Networks of existing programs: the action alone.
            step = tf.nest.map_structure(lambda t: t[tf.newaxis], (prev_actions, env_outputs))
            output = AgentOutput(output, network.get_action_params(*step, agent_state)[0])
        return output, new_state

    def loss(self, batch: SampledUnrolls) -> StepResult:
        loss, metrics = losses.compute_loss(
            self.config,
            self.distribution,
            self.network,
            self.target_network,
            self.temperature,
            *batch.unrolls,
            self.learning_rewards(batch.unrolls.env_outputs),
        )
        return StepResult(loss, metrics)

    def trainable_variables(self) -> list[tf.Variable]:
        """Without V if nothing reads it, because Keras would warn that it has no gradient.

        A subclass whose own loss trains V must set `bootstrap_net` to v.
        """
        unread = {id(variable) for variable in self._unread}
        read = [v for v in super().trainable_variables() if id(v) not in unread]
        return read + self.clipped_apart()

    def clipped_apart(self) -> list[tf.Variable]:
        return variables.trainable_variables(self.temperature)

    def checkpointables(self) -> dict[str, Any]:
        return {"temperature": self.temperature, **super().checkpointables()}

    def _create_variables(self, network: tf.Module) -> list[tf.Variable]:
        """Calls every part of a network; acting only creates the variables of the actor.

        Returns:
          The variables that belong to V alone, if nothing reads V.
        """
        action, env_output = tf.nest.map_structure(
            lambda spec: tf.zeros([1, 1, *spec.shape], spec.dtype),
            (self.specs.action, self.specs.env_output),
        )
        state = network.initial_state(1)
        network.get_action_params(action, env_output, state)
        q = network.get_Q(action, env_output, state, action)
        check_quantiles(self.config, q.shape[-1] if q.shape.rank == 4 else 1)
        others = {id(variable) for variable in variables.variables(network)}
        network.get_V(action, env_output, state)
        if losses.reads_v(self.config, self.distribution):
            return []
        return [v for v in variables.variables(network) if id(v) not in others]


def create_job(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    sac: SACConfig | None = None,
    replay: ReplayConfig | None = None,
    hindsight: HindsightConfig | None = None,
    continuous: ContinuousDistributionConfig | None = None,
    config: LearnerConfig | None = None,
    env_config: Any = None,
    algorithm: type[SAC] = SAC,
    **options: Any,
) -> TrainingJob:
    """Assembles SAC, environment and devices; `create_job(...).execute()` trains.

    The first arguments, `config`, `env_config` and `options` are those of `job.make_job`; for the
    methods of the network, see `networks`. Options of the agent are by default those of the flags.
    A subclass as `algorithm` has the same constructor arguments.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    sac = sac or from_flags(SACConfig)
    replay = replay or from_flags(ReplayConfig)
    hindsight = hindsight or from_flags(HindsightConfig)
    continuous = continuous or from_flags(ContinuousDistributionConfig)
    config = config or from_flags(LearnerConfig)
    length = kept_length(config, hindsight)

    def create_algorithm(context: AlgorithmContext) -> SAC:
        validate(context.run, config, replay, hindsight, learners=context.learners)
        refuse_unused_target(sac)
        create_hindsight = None
        if hindsight.her_window_length:
            create_hindsight = functools.partial(
                Hindsight,
                goals.reward_function(create_env_fn(0, env_config), context.spaces.observation),
                config.unroll_length,
                hindsight.her_substitution_probability,
                context.run.seed,
            )
        created = algorithm(sac, replay, context, create_hindsight)
        _check_windows(created.network, length, config.unroll_length)
        _log_updates(config, replay, hindsight)
        return created

    return make_job(
        create_env_fn,
        create_agent_fn,
        create_algorithm,
        create_optimizer_fn,
        continuous=continuous,
        # Inference records unrolls as the replay keeps them; the run's record has the option as
        # given.
        config=dataclasses.replace(config, unroll_length=length),
        env_config=env_config,
        agent_options=(sac, replay, hindsight, continuous, config),
        **options,
    )


def _check_windows(network: tf.Module, length: int, unroll_length: int) -> None:
    """Refuses windows longer than unrolls if the network is recurrent."""
    if length > unroll_length and tf.nest.flatten(network.initial_state(1)):
        raise UserError(
            f"--her_window_length={length} is longer than --unroll_length={unroll_length}, but the "
            "network is recurrent: there is no recurrent state for the middle of a window. Make "
            "them equal, or set --lstm_sizes=0."
        )


def _log_updates(config: LearnerConfig, replay: ReplayConfig, hindsight: HindsightConfig) -> None:
    if updates := updates_per_step(config, replay, hindsight):
        logging.info(
            "%.3g updates per agent step: replay_ratio %g / (batch_size %d * %d steps per unroll "
            "in the replay).",
            updates,
            replay.replay_ratio,
            config.batch_size,
            kept_length(config, hindsight),
        )
