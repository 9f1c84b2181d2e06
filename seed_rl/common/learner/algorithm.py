"""The interface between an agent and the shared inference and learner.

The learner drives an algorithm like this (`learner.Learner`):

    algorithm.before_first_step(steps)                  # in Python, 0 in a new run
    for batch in algorithm.dataset(store, batch_size, encode):
        result = algorithm.update(batch, minimize)      # on each training replica, in a tf.function
        algorithm.after_step(result.feedback, steps)    # in Python
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from gymnasium.spaces import Discrete

from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.errors import UserError
from seed_rl.common.inference import env_specs, finite_unrolls
from seed_rl.common.inference.inference_store import InferenceStore
from seed_rl.common.inference.policy import Policy
from seed_rl.common.learner import variables
from seed_rl.common.nest import Nest
from seed_rl.common.types import EnvOutput, Spaces, Specs, Unroll

CreateAgent = Callable[[Any, Any, ParametricDistribution], tf.Module]
"""`create_agent(action_space, observation_space, parametric_action_distribution)` returns a network
in either call form of `call_network`; the last argument is the distribution over actions."""


@dataclasses.dataclass(frozen=True)
class AlgorithmContext:
    """What algorithms are created from, besides their own options.

    Attributes:
      run: options shared with the actors.
      config: options of the learner.
      spaces: (observation, action) of one environment.
      create_agent_fn: see `CreateAgent`.
      continuous: options of continuous actions.
      learners: how many train together.
    """

    run: RunConfig
    config: LearnerConfig
    spaces: Spaces
    create_agent_fn: CreateAgent
    continuous: ContinuousDistributionConfig | None = None
    learners: int = 1

    @functools.cached_property
    def specs(self) -> Specs:
        """Tensor specs of one environment."""
        return env_specs.specs(*self.spaces)

    @functools.cached_property
    def distribution(self) -> ParametricDistribution:
        """The distribution over actions.

        Raises:
          UserError: there is none for this action space.
        """
        return get_parametric_distribution_for_action_space(self.spaces.action, self.continuous)

    def discrete_actions(self, agent: str) -> Discrete:
        """The action space, for an agent that chooses among values.

        Raises:
          UserError: actions are not discrete.
        """
        actions = self.spaces.action
        if not isinstance(actions, Discrete):
            raise UserError(
                f"{agent} needs a Discrete action space, but the environment has {actions}. Train "
                "with vtrace, ppo or sac, or wrap the environment to make its actions discrete."
            )
        return actions

    def create_network(self) -> tf.Module:
        """Creates a network; call it in the scope of the training strategy."""
        observation, action = self.spaces
        return self.create_agent_fn(action, observation, self.distribution)


class StepResult(NamedTuple):
    """Result of a loss, and of a training step.

    Attributes:
      loss: <float32>[], to be minimized.
      metrics: <float32>[] by name, for TensorBoard.
      feedback: nest of tensors for `Algorithm.after_step`, batched in the first dimension
        (R2D2's new priorities, for example); () if none.
    """

    loss: tf.Tensor
    metrics: Mapping[str, tf.Tensor]
    feedback: Nest = ()


Minimize = Callable[[Callable[[], StepResult]], StepResult]
"""`minimize(loss)` takes one gradient step on the result of `loss()`.

It averages the gradients over the replicas, clips them, applies the optimizer, and returns the
result with the metrics `loss`, `gradient_norm` and `skipped_steps` added.
"""


class Algorithm(Policy):
    """An agent as the learner sees it: a `Policy` that can be trained.

    Attributes:
      updates_per_batch: gradient steps per `batch_size` unrolls of experience; determines the
        length of learning rate schedules.
      unrolls_before_training: unrolls of experience that a learner waits for before it trains.
      block_inference_on_training: whether inference waits from the moment the unrolls of a training
        step are complete until the step is done, so that new steps come from the newest weights.
        For on-policy algorithms whose steps train on `batch_size` unrolls of `store.dequeue`; not
        for a `ReplayAlgorithm`.
      start_frames: environment frames of the run before this learner began; the learner sets it
        before `before_first_step`. None outside a learner.
    """

    updates_per_batch: float = 1.0
    unrolls_before_training: int = 0
    block_inference_on_training: bool = False
    start_frames: int | None = None
    _trained_on: int = 0

    @abc.abstractmethod
    def make_network(self) -> tf.Module:
        """Creates another network of the same architecture, for a dedicated inference device."""

    @abc.abstractmethod
    def evaluate(
        self, prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest
    ) -> tuple[Nest, Nest]:
        """Acts as in evaluation, with `network`; for exported models and `seed_rl.play`.

        Returns:
          (actions, new recurrent state), nests of [batch, ...].
        """

    def learning_rewards(self, env_outputs: EnvOutput) -> tf.Tensor:
        """Rewards <float32>[time, batch] to learn from; by default the environment's.

        The network's inputs keep the environment's rewards, as when acting. With a replay, initial
        priorities use these rewards too. Losses scale and clip them.

        Args:
          env_outputs: nest of [time, batch, ...].
        """
        return env_outputs.reward

    def loss(self, batch: Any) -> StepResult:
        """The loss of a batch from `dataset`; used by the default `update`."""
        raise NotImplementedError(f"{type(self).__name__} has neither `loss` nor `update`.")

    def update(self, batch: Any, minimize: Minimize) -> StepResult:
        """Trains on a batch from `dataset`; by default, one gradient step on `loss`.

        Runs on each training replica, inside a `tf.function`. Override it for anything else:
        several epochs, minibatches, updates of statistics. Every replica must call `minimize` the
        same number of times. With several replicas, do not call it inside a `tf.while_loop`, where
        they cannot exchange gradients; `minibatches.mean_of_steps` has a loop around them.

        Args:
          batch: this replica's part.
          minimize: takes a gradient step.

        Returns:
          The result to report; for several gradient steps, usually `training.mean_result`.
        """
        return minimize(lambda: self.loss(batch))

    def dataset(
        self, store: InferenceStore, batch_size: int, encode: Callable[[Nest], Nest]
    ) -> tf.data.Dataset:
        """Endless training batches; by default `Unroll`s, oldest first, each used once.

        Unrolls with NaN or infinity are reported, and all their steps are marked `abandoned`, which
        losses must mask.

        Args:
          store: source of complete unrolls.
          batch_size: unrolls per batch, for one replica.
          encode: applied to each batch; converts it to a form that transfers quickly to the
            training devices.
        """

        def next_unrolls(_: tf.Tensor) -> Nest:
            unrolls = finite_unrolls.leave_out(store.dequeue(batch_size), store.not_finite)
            return encode(Unroll(unrolls.agent_state, *unrolls.steps))

        # One batch ahead: the next one is assembled while this one is trained on. (With
        # `block_inference_on_training` the store hands it out after this one's training.)
        return tf.data.Dataset.from_tensors(0).repeat().map(next_unrolls).prefetch(1)

    def taken_at_once(self, batch_size: int) -> int:
        """The most unrolls that `dataset` takes from the store at once, by default a whole batch.

        The store must be able to hold that many, or inference and training would deadlock. More
        would only get older there.

        Args:
          batch_size: unrolls per batch, over all replicas.
        """
        return batch_size

    def ready(self) -> bool:
        """Whether training may begin: not while a replay is filling. Called after `dataset`."""
        return True

    @property
    def unrolls_consumed(self) -> int:
        """Unrolls of experience used so far; a run computes its frames from them."""
        return self._trained_on

    def trained_on(self, num_unrolls: int) -> None:
        """Called after each training step with the size of its batch, over all replicas."""
        self._trained_on += num_unrolls

    def check(self) -> None:
        """Re-raises the exception of a background thread; called when the batches end."""

    def trainable_variables(self) -> list[tf.Variable]:
        """The variables that the optimizer updates."""
        # Not `network.trainable_variables`: a tf.Module does not see variables of Keras 3 layers.
        return variables.trainable_variables(self.network)

    def jit_pays(self, device_type: str) -> bool:
        """Whether XLA makes training steps faster; called with variables created.

        On a GPU it does: there, each small op costs a kernel launch (docs/scale.md).

        Args:
          device_type: "CPU", "GPU" or "TPU".
        """
        return device_type == "GPU"

    def clipped_apart(self) -> list[tf.Variable]:
        """Those of `trainable_variables` whose gradients are clipped separately.

        Lagrange multipliers belong here: the size of their gradients is unrelated to that of the
        network's, and a shared norm would shrink the network's steps.
        """
        return []

    def checkpointables(self) -> dict[str, Any]:
        """Objects to checkpoint besides network, optimizer and counters, by name."""
        return {}

    def extra_files(self) -> dict[str, Any]:
        """`checkpoints.ExtraFiles` to write into each checkpoint, by name."""
        return {}

    def before_first_step(self, train_steps: int) -> None:
        """Called once the network has the values of a checkpoint, if there is one.

        Args:
          train_steps: done by this run before; 0 also with the weights of another run.
        """

    def after_step(self, feedback: Nest, train_steps: int) -> None:
        """Called in Python after each training step (priorities, target networks).

        Runs outside `strategy.run`, once for all replicas. By default, calls the network's method
        `end_of_training_step_callback`, if it has one (because it normalizes observations, say). A
        subclass that overrides this must call it.
        """
        callback = getattr(self.network, "end_of_training_step_callback", None)
        if callback is not None:
            callback()

    def before_save(self) -> None:
        """Called before a checkpoint is written, to bring `checkpointables` up to date."""

    def logs(self) -> dict[str, Any]:
        """Further values for TensorBoard, collected once per logging period.

        Arrays become histograms.
        """
        return {}

    def close(self) -> None:
        """Stops the algorithm's threads."""
