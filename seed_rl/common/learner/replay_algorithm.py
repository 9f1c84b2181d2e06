"""Base of algorithms with a replay (filling, sampling, priorities, saving) and a target network."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common.config.replay_config import SAVE_ALWAYS, SAVE_AT_STOP, ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference import finite_unrolls
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.learner import devices
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.replay_pipeline import (
    DIVERGED,
    MOST_AT_ONCE,
    BatchSource,
    PriorityWriter,
    ReplayWriter,
)
from seed_rl.common.nest import Nest
from seed_rl.common.replay import Hindsight, PrioritizedReplay, ReplayFiles, unroll_specs
from seed_rl.common.types import Specs, Step, Unroll


class ReplayAlgorithm(Algorithm):
    """Trains on batches sampled from a replay of unrolls, with a target network.

    A subclass may say what the replay keeps (`kept`) and with which priority
    (`initial_priorities`).
    Its `loss` takes `SampledUnrolls` and returns (indices <int64>[batch], new priorities
    <float32>[batch]) as feedback, or () to leave the priorities alone. If its `dataset` takes whole
    batches from the store, `taken_at_once` must say so.

    Attributes:
      replay: the unrolls.
      target_network: follows `network`; the subclass creates both.
    """

    replay: PrioritizedReplay
    target_network: tf.Module

    def __init__(
        self,
        config: ReplayConfig,
        specs: Unroll,
        seed: int | None,
        target_period: int,
        target_fraction: float = 1.0,
    ):
        """Creates the replay; call it in the scope of the training strategy.

        Args:
          config: options of the replay.
          specs: of what `kept` returns, for one unroll without batch dimension; see
            `replay_specs`.
          seed: makes sampling repeatable.
          target_period: training steps from one update of the target network to the next.
          target_fraction: of the distance by which an update moves it; 1: it becomes a copy.

        Raises:
          UserError: the replay would not fit into memory.
        """
        assert not self.block_inference_on_training, "A replay may need more unrolls to begin."
        self._replay_config = config
        self.updates_per_batch = config.replay_ratio or 1.0
        self.unrolls_before_training = config.replay_buffer_min_size
        self.replay = PrioritizedReplay(config, specs, seed)
        self._num_inserted = tf.Variable(0, dtype=tf.int64, trainable=False, name="inserted")
        self._insertion = tf.function(self._prepare, autograph=False, reduce_retracing=True)
        self._store: InferenceStore | None = None
        self._writer: ReplayWriter | None = None
        self._priorities = PriorityWriter(self.replay)
        self._sources: list[BatchSource] = []
        self._target_period = target_period
        self._target_fraction = target_fraction
        self._move_target = tf.function(
            lambda fraction: devices.copy_variables(self.network, [self.target_network], fraction),
            autograph=False,
        )

    def kept(self, unrolls: Unroll) -> Unroll:
        """What the replay keeps of unrolls [time, batch, ...] as inference recorded them.

        By default, only the actions of the agent's outputs.
        """
        return unrolls._replace(agent_outputs=unrolls.agent_outputs.action)

    def initial_priorities(self, unrolls: Unroll) -> tf.Tensor:
        """Priorities <float32>[batch] of new unrolls; by default 1.

        Runs on the CPU, in a `tf.function`.

        Args:
          unrolls: [time, batch, ...] as inference recorded them.
        """
        return tf.ones(tf.shape(unrolls.env_outputs.reward)[1:])

    def hindsight(self) -> Hindsight | None:
        """What to apply to sampled batches, a new object for each call; by default nothing."""
        return None

    def dataset(
        self, store: InferenceStore, batch_size: int, encode: Callable[[Nest], Nest]
    ) -> tf.data.Dataset:
        if self._writer is None:
            inserted = int(self._num_inserted.numpy())
            self._store = store
            self._writer = ReplayWriter(
                store, self.replay, self._insertion, self._check_network, inserted
            )
        source = BatchSource(self.replay, batch_size, self.hindsight())
        self._sources.append(source)
        return source.dataset(encode)

    def taken_at_once(self, batch_size: int) -> int:
        return min(batch_size, MOST_AT_ONCE)

    def ready(self) -> bool:
        self.check()
        return self.replay.limiter.warm  # Nothing is sampled before the first training step.

    @property
    def unrolls_consumed(self) -> int:
        """Unrolls inserted into the replay, however often each is sampled."""
        return self._writer.inserted if self._writer else int(self._num_inserted.numpy())

    def check(self) -> None:
        if self._writer is not None and self._writer.error is not None:
            raise self._writer.error

    def before_first_step(self, train_steps: int) -> None:
        super().before_first_step(train_steps)
        if not train_steps:  # The weights may come from --init_checkpoint.
            self._move_target(1.0)

    def after_step(self, feedback: Nest, train_steps: int) -> None:
        super().after_step(feedback, train_steps)
        if feedback:
            self._priorities.put(*feedback)
        if train_steps % self._target_period == 0:
            self._move_target(self._target_fraction)

    def before_save(self) -> None:
        self._priorities.flush()
        self._num_inserted.assign(self.unrolls_consumed)

    def checkpointables(self) -> dict[str, Any]:
        return {"target_agent": self.target_network, "inserted_unrolls": self._num_inserted}

    def extra_files(self) -> dict[str, Any]:
        return replay_files(self.replay, self._replay_config.save_replay, lambda: self._store)

    def logs(self) -> dict[str, Any]:
        values = replay_logs(self.replay)
        if self._sources:
            ages = [source.mean_age for source in self._sources]
            values["replay/sampled_age_unrolls"] = np.mean(ages)
        recent = self._priorities.recent()
        if len(recent):
            values["replay/priorities"] = recent
        return values

    def close(self) -> None:
        self.replay.close()
        if self._writer is not None and self._store is not None:
            self._store.close()
            self._writer.join()
        self._priorities.close()

    def _prepare(self, unrolls: Unroll) -> tuple[Unroll, tf.Tensor]:
        # A NaN in the network's inputs need not reach its outputs: a ReLU may turn it into 0.
        finite = finite_unrolls.finite(unrolls.agent_state, unrolls.env_outputs)
        priorities = self.initial_priorities(unrolls)
        return self.kept(unrolls), tf.where(finite, priorities, math.nan)

    def _check_network(self) -> None:
        """Raises UserError if the weights are not finite."""
        weights = self.trainable_variables()
        if not all(bool(tf.reduce_all(tf.math.is_finite(weight))) for weight in weights):
            raise UserError(DIVERGED)


def replay_logs(replay: PrioritizedReplay) -> dict[str, Any]:
    """The replay's part of `Algorithm.logs`."""
    return {f"replay/{name}": value for name, value in dataclasses.asdict(replay.stats()).items()}


def replay_files(
    replay: PrioritizedReplay, wanted: str, store: Callable[[], InferenceStore | None]
) -> dict[str, Any]:
    """The replay's part of `Algorithm.extra_files`, written when `--save_replay` says so.

    Args:
      replay: what to save.
      wanted: the value of the option.
      store: returns the store, which is closed when the run ends; None: not yet created.
    """

    def now() -> bool:
        current = store()
        stopping = current is not None and current.closed
        return wanted == SAVE_ALWAYS or (wanted == SAVE_AT_STOP and stopping)

    return {"replay": ReplayFiles(replay, now)}


def replay_specs(network: tf.Module, specs: Specs, kept_outputs: Nest, num_steps: int) -> Unroll:
    """Specs of the unrolls in a replay, as `ReplayAlgorithm` takes them.

    Args:
      network: determines the recurrent state.
      specs: of one environment.
      kept_outputs: nest of `tf.TensorSpec`, what `ReplayAlgorithm.kept` leaves of agent outputs.
      num_steps: steps of an unroll, with overlap and bootstrap step.
    """
    state = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape[1:], t.dtype), network.initial_state(1)
    )
    step = Step(specs.action, specs.env_output, kept_outputs)
    agent_state, steps = unroll_specs(step, num_steps, state)
    return Unroll(agent_state, *steps)
