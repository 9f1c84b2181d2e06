"""V-trace (IMPALA) as an `Algorithm`, and the job that trains it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.vtrace import losses
from seed_rl.agents.vtrace.config import VTraceConfig, VTraceReplayConfig
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.options import from_flags, refuse_unused
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.inference.inference import initialize
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import variables
from seed_rl.common.learner.actor_critic import ActorCriticAlgorithm
from seed_rl.common.learner.algorithm import AlgorithmContext, CreateAgent, StepResult
from seed_rl.common.learner.job import CreateOptimizer, TrainingJob, make_job
from seed_rl.common.learner.replay_algorithm import replay_files, replay_logs, replay_specs
from seed_rl.common.learner.replay_pipeline import ReplayMixer
from seed_rl.common.nest import Nest
from seed_rl.common.replay import PrioritizedReplay
from seed_rl.common.types import EnvOutput, Unroll


class VTrace(ActorCriticAlgorithm):
    """Actor-critic with off-policy correction (Espeholt et al. 2018).

    Attributes:
      learns_from_replay: whether `loss` corrects for the policy of replayed unrolls; a subclass
        whose own loss does not must set it to False.
    """

    learns_from_replay = True

    def __init__(self, config: VTraceConfig, context: AlgorithmContext):
        """See `ActorCriticAlgorithm`.

        Raises:
          UserError: actions that cannot persist as `config` asks.
        """
        actions = context.spaces.action
        if config.action_persistence > 1.0 and not isinstance(actions, spaces.Discrete):
            raise UserError(
                f"--action_persistence={config.action_persistence:g} needs actions that are one "
                f"discrete choice, but these are {actions}. Set --action_persistence=1."
            )
        super().__init__(context)
        self.config = config
        self.block_inference_on_training |= config.block_inference_on_training
        self._entropy_cost = losses.create_entropy_cost(config)
        self._popart = losses.make_popart(config) if config.popart else None
        self._replay = VTraceReplayConfig()
        self._mixer: ReplayMixer | None = None
        self._store: InferenceStore | None = None

    def act(
        self,
        network: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        acted = super().act(network, env_ids, prev_actions, env_outputs, agent_state)
        if self.config.action_persistence == 1.0:
            return acted
        others = max(1, self._num_training_envs * 3 // 4)  # `play` acts as environment 0.
        persists = (env_ids >= others) & (env_ids < self._num_training_envs)
        action = persist(
            self.distribution,
            acted.agent_outputs.policy_logits,
            prev_actions,
            # The first step of an environment's life has no previous action either.
            env_outputs.done | tf.equal(env_outputs.episode_step, 0),
            self.config.action_persistence,
        )
        action = tf.where(persists, action, acted.action)
        recorded = acted.agent_outputs._replace(action=action)
        return Acted(action, recorded, acted.agent_state)

    def use_replay(self, config: VTraceReplayConfig, context: AlgorithmContext) -> None:
        """Creates the replay that complements batches; call it where the network was made.

        Args:
          config: options of the replay.
          context: that of the constructor.

        Raises:
          UserError: the replay would not fit into memory.
        """
        recorded = initialize(self, self.network, self.specs)
        steps = context.config.unroll_length + 1
        specs = replay_specs(self.network, self.specs, recorded, steps)
        replay = PrioritizedReplay(config.replay(), specs, context.run.seed)
        self._replay, self._mixer = config, ReplayMixer(replay, config.replay_ratio)

    def dataset(
        self, store: InferenceStore, batch_size: int, encode: Callable[[Nest], Nest]
    ) -> tf.data.Dataset:
        if self._mixer is None:
            return super().dataset(store, batch_size, encode)
        self._store = store
        return self._mixer.dataset(functools.partial(super().dataset, store, batch_size), encode)

    def extra_files(self) -> dict[str, Any]:
        if self._mixer is None:
            return {}
        return replay_files(self._mixer.replay, self._replay.save_replay, lambda: self._store)

    def logs(self) -> dict[str, Any]:
        return replay_logs(self._mixer.replay) if self._mixer else {}

    def loss(self, batch: Unroll) -> StepResult:
        loss, metrics = losses.compute_loss(
            self.config,
            self.distribution,
            self.network,
            *batch,
            self._entropy_cost,
            self.learning_rewards(batch.env_outputs),
            self._popart,
            self._replay.replay_ratio,
        )
        return StepResult(loss, metrics)

    def trainable_variables(self) -> list[tf.Variable]:
        popart = variables.trainable_variables(self._popart)
        return super().trainable_variables() + popart + self.clipped_apart()

    def clipped_apart(self) -> list[tf.Variable]:
        return variables.trainable_variables(self._entropy_cost)

    def checkpointables(self) -> dict[str, Any]:
        popart = {"popart": self._popart} if self._popart else {}
        return {"entropy_cost": self._entropy_cost, **popart}


def persist(
    distribution: ParametricDistribution,
    logits: tf.Tensor,
    prev_actions: tf.Tensor,
    first: tf.Tensor,
    mean_steps: float,
) -> tf.Tensor:
    """Samples actions, preferring the previous ones while the policy is undecided.

    Independent samples of an undecided policy jitter; repeated actions get further (an idea of
    Dabney et al. 2020, arXiv 2006.01782). Of n allowed choices, the previous action a is kept with
    probability

        k(a) = (1 - 1 / mean_steps) pi(a) (1 / max pi - 1) n / (n - 1),

    and otherwise one is drawn in proportion to pi(a) (1 - k(a)). While the policy pi stays the
    same, it is the stationary distribution of this Markov chain, although probabilities given the
    previous action differ from pi. A policy that has decided samples almost independently, so it
    changes its action as soon as it wants another.

    Args:
      distribution: over one of n choices, parametrized by `logits`.
      logits: <float32>[batch, n] of the policy pi; -inf for choices that are not allowed.
      prev_actions: <int>[batch].
      first: <bool>[batch]; where true there is no previous action, and none is kept.
      mean_steps: from 1 to 1e6: the mean time for which an undecided policy keeps an action before
        it draws again; 1 for independent samples.

    Returns:
      <int>[batch].
    """
    allowed = tf.reduce_sum(tf.cast(logits > -math.inf, tf.float32), axis=-1, keepdims=True)
    policy = tf.nn.softmax(logits)
    indecision = tf.math.divide_no_nan(
        1.0 / tf.reduce_max(policy, axis=-1, keepdims=True) - 1.0, allowed - 1.0
    )
    longest = tf.where(first, 0.0, 1.0 - 1.0 / mean_steps)[:, tf.newaxis]
    kept = longest * policy * allowed * indecision
    others = distribution.sample(logits + tf.math.log1p(-kept))
    kept_previous = tf.reduce_sum(kept * distribution.action_features(prev_actions), axis=-1)
    return tf.where(tf.random.uniform(tf.shape(first)) < kept_previous, prev_actions, others)


def create_job(
    create_env_fn: Callable[[int, Any], Any],
    create_agent_fn: CreateAgent,
    create_optimizer_fn: CreateOptimizer | None = None,
    *,
    vtrace: VTraceConfig | None = None,
    replay: VTraceReplayConfig | None = None,
    continuous: ContinuousDistributionConfig | None = None,
    algorithm: type[VTrace] = VTrace,
    **options: Any,
) -> TrainingJob:
    """Assembles V-trace, environment and devices; `create_job(...).execute()` trains.

    The first arguments and `options` are those of `job.make_job`. Options of the agent are by
    default those of the flags. A subclass as `algorithm` has the same constructor arguments.

    Raises:
      UserError: options that are incompatible with each other, the environment or this machine.
    """
    vtrace = vtrace or from_flags(VTraceConfig)
    replay = replay or from_flags(VTraceReplayConfig)
    continuous = continuous or from_flags(ContinuousDistributionConfig)
    if replay.replay_ratio and not algorithm.learns_from_replay:
        raise UserError(
            f"--replay_ratio={replay.replay_ratio}: {algorithm.__name__} only learns from the "
            "actions of its latest policy. Leave it out, or train with vtrace."
        )

    def create_algorithm(context: AlgorithmContext) -> VTrace:
        if not vtrace.entropy_cost_adjustment_speed:
            why = "--entropy_cost_adjustment_speed=0 keeps the entropy cost fixed"
            refuse_unused(("target_entropy",), why)
        elif vtrace.target_entropy is None:
            refuse_unused(("entropy_cost_adjustment_speed",), "--target_entropy is not set")
        if not vtrace.popart:
            refuse_unused(("popart_beta",), "--popart is not set")
        created = algorithm(vtrace, context)
        if replay.replay_ratio:
            created.use_replay(replay, context)
        elif not context.run.play_request:  # When playing, every replay is small.
            others = [field.name for field in dataclasses.fields(replay)]
            refuse_unused(others, "--replay_ratio=0 keeps no replay")
        return created

    return make_job(
        create_env_fn,
        create_agent_fn,
        create_algorithm,
        create_optimizer_fn,
        continuous=continuous,
        agent_options=(vtrace, replay, continuous),
        replay_ratio=replay.replay_ratio,
        **options,
    )
