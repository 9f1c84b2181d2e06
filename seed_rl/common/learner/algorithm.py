"""What an agent brings to the shared inference and learner."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from seed_rl.common.inference import finite_unrolls
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.inference.policy import Acted
from seed_rl.common.learner import variables
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Unroll


class StepResult(NamedTuple):
    """Result of a loss on one batch.

    Attributes:
      loss: <float32>[] to be minimized.
      metrics: scalars by name, for TensorBoard.
      feedback: nest of tensors for `Algorithm.after_step`, batched in the first dimension
        (R2D2's new priorities, say); () where there is none.
    """

    loss: tf.Tensor
    metrics: Mapping[str, tf.Tensor]
    feedback: Nest = ()


class Algorithm(abc.ABC):
    """An agent as the learner sees it: networks, how to act, a loss.

    Attributes:
      agent: the network being trained. Central inference runs it, or copies of it on its own
        devices.
      num_overlapping_steps: steps shared by consecutive unrolls (burn-in).
      passes_over_experience: how many times each unroll is trained on.
    """

    agent: tf.Module
    num_overlapping_steps: int = 0
    updates_per_unroll: float = 1.0

    @abc.abstractmethod
    def make_agent(self) -> tf.Module:
        """Another network of the same form, for an inference device of its own."""

    @abc.abstractmethod
    def act(
        self,
        agent: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        """Chooses actions.

        Args:
          agent: the network to use: `self.agent` or a copy.
          env_ids: <int32>[batch].
          prev_actions: nest of [batch, ...].
          env_outputs: nest of [batch, ...].
          agent_state: nest of [batch, ...].
        """

    @abc.abstractmethod
    def evaluate(
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        """Acts as in evaluation, with the trained network; for exported models.

        Returns:
          (actions, new recurrent state), nests of [batch, ...].
        """

    @abc.abstractmethod
    def loss(self, batch: Any) -> StepResult:
        """The loss on a batch from `dataset`, run on each training replica."""

    def dataset(
        self, store: InferenceStore, batch_size: int, encode: Callable[[Nest], Nest]
    ) -> tf.data.Dataset:
        """Endless training batches; by default the unrolls of the newest policies.

        Unrolls that are not finite are reported, and all their steps are `abandoned`: no loss may
        count them.

        Args:
          store: where inference leaves complete unrolls.
          batch_size: unrolls per batch, for one replica.
          encode: to be applied to each batch: brings it into the form that the training devices
            take quickly.
        """

        def next_unrolls(_: tf.Tensor) -> Nest:
            unrolls = finite_unrolls.leave_out(store.dequeue(batch_size), store.not_finite)
            return encode(Unroll(unrolls.agent_state, *unrolls.steps))

        # One batch ahead: the next one is put together while this one is trained on.
        return tf.data.Dataset.from_tensors(0).repeat().map(next_unrolls).prefetch(1)

    def ready(self) -> bool:
        """Whether training may begin; asked after `dataset`, while a replay fills, say."""
        return True

    def num_unrolls(self, train_steps: int, batch_size: int) -> int:
        """Unrolls of experience that `train_steps` steps have used, which the run is counted by.

        Args:
          train_steps: training steps so far.
          batch_size: unrolls in each, over all replicas.
        """
        return train_steps * batch_size

    def check(self) -> None:
        """Raises what ended a thread of the algorithm; asked when there are no more batches."""

    def trainable_variables(self) -> list[tf.Variable]:
        """What the optimizer updates."""
        # Not `agent.trainable_variables`: a tf.Module does not see the variables of Keras 3 layers.
        return variables.trainable_variables(self.agent)

    def clipped_apart(self) -> list[tf.Variable]:
        """Those of `trainable_variables` whose gradients are clipped by a norm of their own.

        Lagrange multipliers belong here: their gradients have nothing to do with the size of the
        network's, and in one norm with them would shorten the network's steps.
        """
        return []

    def checkpointables(self) -> dict[str, Any]:
        """By name, what a checkpoint must hold besides agent, optimizer and counters."""
        return {}

    def extra_files(self) -> dict[str, Any]:
        """By name, `checkpoints.ExtraFiles` to be written into each checkpoint."""
        return {}

    def after_step(self, feedback: Nest, train_steps: int) -> None:
        """Called in Python after each training step (priorities, target networks)."""

    def before_save(self) -> None:
        """Called before a checkpoint is written, to bring `checkpointables` up to date."""

    def logs(self) -> dict[str, Any]:
        """Further values for TensorBoard, asked for once per logging period.

        Of arrays, the histogram is shown.
        """
        return {}

    def close(self) -> None:
        """Ends whatever threads the algorithm started."""
