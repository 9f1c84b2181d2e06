"""R2D2 on the shared inference and learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.r2d2 import config as config_lib
from seed_rl.agents.r2d2 import losses
from seed_rl.agents.r2d2.compat import (
    Unroll,
    compute_loss_and_priorities,
    compute_loss_and_priorities_from_agent_outputs,
    create_dataset,
    get_num_training_envs,
    get_replay_insertion_batch_size,
    is_training_env,
    validate_config,
)
from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.agents.r2d2.experience import (
    DIVERGED,
    BatchSource,
    PriorityWriter,
    ReplayWriter,
    SampledUnrolls,
)
from seed_rl.agents.r2d2.losses import (
    apply_epsilon_greedy,
    get_envs_epsilon,
    inverse_value_function_rescaling,
    n_step_bellman_target,
    value_function_rescaling,
)
from seed_rl.agents.r2d2.networks import AgentOutput
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import from_flags
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference.agent_calls import call_agent
from seed_rl.common.inference.inference import initialize
from seed_rl.common.inference.inference_store import InferenceStore, StoredUnrolls
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import devices, replicas
from seed_rl.common.learner.algorithm import Algorithm, StepResult
from seed_rl.common.learner.assembly import AlgorithmContext, learn
from seed_rl.common.learner.learner import CreateOptimizer
from seed_rl.common.monitoring.metrics import EpisodeInfo
from seed_rl.common.nest import Nest
from seed_rl.common.replay import PrioritizedReplay, ReplayConfig, ReplayFiles, unroll_specs
from seed_rl.common.types import EnvOutput, Specs, Step
from seed_rl.common.types import Unroll as ReplayedUnroll

# The names that existing programs import from here.
__all__ = [
    "R2D2",
    "EpisodeInfo",
    "SampledUnrolls",
    "Unroll",
    "apply_epsilon_greedy",
    "compute_loss_and_priorities",
    "compute_loss_and_priorities_from_agent_outputs",
    "create_dataset",
    "get_envs_epsilon",
    "get_num_training_envs",
    "get_replay_insertion_batch_size",
    "inverse_value_function_rescaling",
    "is_training_env",
    "learner_loop",
    "n_step_bellman_target",
    "validate_config",
    "value_function_rescaling",
]


class R2D2(Algorithm):
    """Recurrent double Q-learning from a prioritized replay (Kapturowski et al. 2019)."""

    def __init__(
        self,
        config: R2D2Config,
        replay_config: ReplayConfig,
        create_agent: Callable[[], tf.Module],
        specs: Specs,
        action_space: spaces.Discrete,
        unroll_length: int,
        num_envs: int,
        num_eval_envs: int = 0,
        seed: int | None = None,
    ):
        """Makes both networks and the replay; call it in the scope of the training strategy.

        Args:
          config: options of acting and learning.
          replay_config: options of the replay.
          create_agent: makes a network with `AgentOutput(action, q_values)`, of either form that
            `call_agent` knows.
          specs: of one environment.
          action_space: its actions.
          unroll_length: steps of an unroll besides burn-in and bootstrap step.
          num_envs: environments of the run.
          num_eval_envs: the last so many act with `eval_epsilon`.
          seed: for repeatable sampling.

        Raises:
          UserError: the replay would not fit the memory.
        """
        self._config = config
        self._create_agent = create_agent
        self._num_training_envs = num_envs - num_eval_envs
        self._num_eval_envs = num_eval_envs
        self._num_actions = int(action_space.n)
        self._first_action = int(action_space.start)
        self._action_dtype = specs.action.dtype
        self.num_overlapping_steps = config.burn_in
        self.updates_per_unroll = replay_config.replay_ratio or 1.0
        self.agent = create_agent()
        self.target_agent = create_agent()
        for agent in (self.agent, self.target_agent):
            initialize(self, agent, specs)
        self._num_inserted = tf.Variable(0, dtype=tf.int64, trainable=False, name="inserted")
        self._copy_to_target = tf.function(
            lambda: devices.copy_variables(self.agent, [self.target_agent]), autograph=False
        )
        self._initial_priorities = tf.function(
            self._priorities_of_behaviour, autograph=False, reduce_retracing=True
        )
        self.replay = PrioritizedReplay(
            replay_config, self._replay_specs(specs, unroll_length), seed
        )
        self._store: InferenceStore | None = None
        self._writer: ReplayWriter | None = None
        self._priorities = PriorityWriter(self.replay)
        self._sources: list[BatchSource] = []

    def make_agent(self) -> tf.Module:  # noqa: D102 - inherited
        return self._create_agent()

    def act(  # noqa: D102 - inherited
        self,
        agent: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        output, agent_state = call_agent(
            agent, self._to_choices(prev_actions), env_outputs, agent_state
        )
        choices = losses.apply_epsilon_greedy(
            tf.cast(output.action, tf.int32),
            env_ids,
            self._num_training_envs,
            self._num_eval_envs,
            self._config.eval_epsilon,
            self._num_actions,
        )
        recorded = AgentOutput(choices, output.q_values)
        return Acted(self._to_actions(choices), recorded, agent_state)

    def evaluate(  # noqa: D102 - inherited
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        choices = self._to_choices(prev_actions)
        output, agent_state = call_agent(self.agent, choices, env_outputs, agent_state)
        # Like the evaluation environments: a greedy agent may stand still for ever.
        choices = losses.explore(
            tf.cast(output.action, tf.int32), self._config.eval_epsilon, self._num_actions
        )
        return self._to_actions(choices), agent_state

    def loss(self, batch: SampledUnrolls) -> StepResult:  # noqa: D102 - inherited
        unrolls = batch.unrolls
        td = losses.replay_errors(
            self._config,
            self.agent,
            self.target_agent,
            unrolls.agent_state,
            self._to_choices(unrolls.prev_actions),
            unrolls.env_outputs,
            unrolls.agent_outputs,
        )
        priorities = losses.priorities(td, self._config.priority_eta)
        weights = batch.importance_weights / replicas.maximum(batch.importance_weights)
        loss = tf.reduce_mean(weights * losses.unroll_losses(td))
        mean, sizes = replicas.BatchMean(td.real), tf.abs(td.errors)
        metrics = {
            "q/value": mean(td.q_values),
            "q/target": mean(td.targets),
            "q/abs_td_error": mean(sizes),
            "q/max_abs_td_error": replicas.maximum(sizes),
            "replay/importance_weight": tf.reduce_mean(weights),
        }
        metrics = {name: tf.stop_gradient(value) for name, value in metrics.items()}
        return StepResult(loss, metrics, (batch.indices, priorities))

    def dataset(  # noqa: D102 - inherited
        self, store: InferenceStore, batch_size: int, encode: Callable[[Nest], Nest]
    ) -> tf.data.Dataset:
        if self._writer is None:
            inserted = int(self._num_inserted.numpy())
            if inserted == 0:  # A new run, maybe from given weights.
                self._copy_to_target()
            self._store = store
            self._writer = ReplayWriter(
                store, self.replay, self._prepare, self._check_network, inserted
            )
        source = BatchSource(self.replay, batch_size)
        self._sources.append(source)
        return source.dataset(encode)

    def check(self) -> None:  # noqa: D102 - inherited
        if self._writer is not None and self._writer.error is not None:
            raise self._writer.error

    def ready(self) -> bool:  # noqa: D102 - inherited
        self.check()
        return self.replay.limiter.stats["sampled"] > 0

    def num_unrolls(self, train_steps: int, batch_size: int) -> int:
        """Unrolls inserted into the replay; how often they are sampled does not count."""
        return self._writer.inserted if self._writer else int(self._num_inserted.numpy())

    def after_step(self, feedback: Nest, train_steps: int) -> None:  # noqa: D102 - inherited
        self._priorities.put(*feedback)
        if train_steps % self._config.update_target_every_n_step == 0:
            self._copy_to_target()

    def before_save(self) -> None:  # noqa: D102 - inherited
        self._priorities.flush()
        self._num_inserted.assign(self.num_unrolls(0, 0))

    def checkpointables(self) -> dict[str, Any]:  # noqa: D102 - inherited
        return {"target_agent": self.target_agent, "inserted_unrolls": self._num_inserted}

    def extra_files(self) -> dict[str, Any]:  # noqa: D102 - inherited
        return {"replay": ReplayFiles(self.replay, self._save_replay_now)}

    def logs(self) -> dict[str, Any]:  # noqa: D102 - inherited
        values: dict[str, Any] = {
            f"replay/{name}": value for name, value in self.replay.stats().as_dict().items()
        }
        if self._sources:
            ages = [source.mean_age for source in self._sources]
            values["replay/sampled_age_unrolls"] = np.mean(ages)
        recent = self._priorities.recent()
        if len(recent):
            values["replay/priorities"] = recent
        return values

    def close(self) -> None:  # noqa: D102 - inherited
        self.replay.close()
        for source in self._sources:
            source.close()
        if self._writer is not None and self._store is not None:
            self._store.close()
            self._writer.join()
        self._priorities.close()

    def _save_replay_now(self) -> bool:
        wanted = self._config.save_replay
        stopping = self._store is not None and self._store.closed
        return wanted == config_lib.SAVE_ALWAYS or (wanted == config_lib.SAVE_AT_STOP and stopping)

    def _to_choices(self, actions: tf.Tensor) -> tf.Tensor:
        """From the environment's actions to numbers from 0 on."""
        return tf.cast(actions - self._first_action, tf.int32)

    def _to_actions(self, choices: tf.Tensor) -> tf.Tensor:
        return tf.cast(choices, self._action_dtype) + self._first_action

    def _replay_specs(self, specs: Specs, unroll_length: int) -> ReplayedUnroll:
        state = tf.nest.map_structure(
            lambda t: tf.TensorSpec(t.shape[1:], t.dtype), self.agent.initial_state(1)
        )
        step = Step(specs.action, specs.env_output, tf.TensorSpec([], tf.int32))
        num_steps = self._config.burn_in + unroll_length + 1
        agent_state, steps = unroll_specs(step, num_steps, state)
        return ReplayedUnroll(agent_state, *steps)

    def _prepare(self, stored: StoredUnrolls) -> tuple[ReplayedUnroll, tf.Tensor]:
        """Priorities, and unrolls without the Q-values that only these need."""
        with tf.device("/cpu:0"):
            priorities = self._initial_priorities(
                stored.steps.env_outputs._replace(observation=()), stored.steps.agent_outputs
            )
        steps = stored.steps._replace(agent_outputs=stored.steps.agent_outputs.action)
        return ReplayedUnroll(stored.agent_state, *steps), priorities

    def _check_network(self) -> None:
        """Raises UserError if the weights are not finite."""
        weights = self.trainable_variables()
        if not all(bool(tf.reduce_all(tf.math.is_finite(weight))) for weight in weights):
            raise UserError(DIVERGED)

    def _priorities_of_behaviour(self, env_outputs: EnvOutput, outputs: AgentOutput) -> tf.Tensor:
        """As after training, with the acting network's own Q-values in both roles."""
        env_outputs, outputs = tf.nest.map_structure(
            lambda t: t[self._config.burn_in :], (env_outputs, outputs)
        )
        td = losses.td_errors(self._config, outputs, outputs, env_outputs, outputs.action)
        return losses.priorities(td, self._config.priority_eta)


def learner_loop(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: Callable[[EnvOutput, int], tf.Module],
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    env_config: Any = None,
    run: RunConfig | None = None,
    config: LearnerConfig | None = None,
    r2d2: R2D2Config | None = None,
    replay: ReplayConfig | None = None,
    optimizer: OptimizerConfig | None = None,
    device_config: DeviceConfig | None = None,
) -> None:
    """Trains until the frames are used up or the process is told to stop.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns an environment, made once to
        learn its spaces.
      create_agent_fn: `create_agent_fn(env_output_specs, num_actions)` returns the network, of
        either form of `call_agent`.
      create_optimizer_fn: `create_optimizer_fn(final_iteration)` returns (optimizer,
        learning_rate_fn); by default as `optimizer` says.
      env_config: passed on to `create_env_fn`; the program's flags if not given.
      run: options shared with the actors. Like the other options below, those from the
        program's flags if not given, as in existing programs.
      config: options of the learner.
      r2d2: options of acting and learning.
      replay: options of the replay.
      optimizer: options of the default optimizer, and the gradient clipping.
      device_config: what runs where.

    Raises:
      UserError: options that do not fit together or this machine.
    """
    r2d2 = r2d2 or from_flags(R2D2Config)
    replay = replay or from_flags(ReplayConfig)

    def create_algorithm(setting: AlgorithmContext) -> R2D2:
        config_lib.validate(setting.run, setting.config, r2d2, replay)
        actions = setting.action_space
        if not isinstance(actions, spaces.Discrete):
            raise UserError(
                f"R2D2 needs a Discrete action space, but the environment has {actions}. Train "
                "with vtrace, or wrap the environment so that it has one."
            )
        return R2D2(
            r2d2,
            replay,
            lambda: create_agent_fn(setting.specs.env_output, int(actions.n)),
            setting.specs,
            actions,
            setting.config.unroll_length,
            setting.run.num_envs,
            setting.run.num_eval_envs,
            setting.run.seed,
        )

    learn(
        create_env_fn,
        create_algorithm,
        create_optimizer_fn,
        env_config=env_config,
        run=run,
        config=config,
        optimizer=optimizer,
        device_config=device_config,
        agent_options=(r2d2, replay),
    )
