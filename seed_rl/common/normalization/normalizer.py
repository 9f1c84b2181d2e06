"""Normalizes observations by the statistics of everything that a network was trained on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from seed_rl.common.acting.action_masks import with_mask, without_mask
from seed_rl.common.acting.spaces import has_image_shape
from seed_rl.common.config.network_config import ObservationConfig
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.nest import Nest
from seed_rl.common.normalization import replicated
from seed_rl.common.types import EnvOutput

_LARGEST = 1e15


class Normalizer(tf.Module):
    """clip((x - mean) / (std + eps)), per element of the last dimension.

    The sums are float64, so that the deviation of samples far from 0 is not lost. Samples that are
    not finite, or beyond ±1e15, are left out, element by element.

    The first call creates the variables. The learner makes that call before it restores a
    checkpoint, in the scope of the training strategy.

    Attributes:
      mean: <float32>[size], 0 before the first `finish_update`.
      std: <float32>[size], 1 before it.
    """

    def __init__(self, eps: float = 1e-3, clip_range: tuple[float, float] = (-5, 5)):
        """Prepares; `build`, or the first call, creates the variables.

        Args:
          eps: added to the standard deviation.
          clip_range: bounds of the output.
        """
        super().__init__()
        self._eps = eps
        self._clip_range = clip_range
        self._built = False

    def build(self, input_shape: Sequence[int | None] | tf.TensorShape) -> None:
        """Creates the variables for inputs whose shape ends like this one."""
        size = tf.TensorShape(input_shape)[-1]
        zeros = np.zeros(size)
        names = ("count", "total", "squares")
        self._sums = [replicated.variable(zeros, name) for name in names]
        self._parts = [replicated.variable(zeros, f"new_{name}") for name in names]
        self.mean = replicated.variable(np.zeros(size, np.float32), "mean")
        self.std = replicated.variable(np.ones(size, np.float32), "std")
        self._built = True

    def update(self, input_: tf.Tensor, only_accumulate: bool = False) -> None:
        """Takes samples into account; on several replicas, those of all.

        There, all replicas must call it, and outside of nested functions, conditions and loops.

        Args:
          input_: <float32>[..., size].
          only_accumulate: whether to leave the output as it is until `finish_update`.
        """
        self._build_once(input_)
        flat = tf.reshape(tf.cast(input_, tf.float64), [-1, input_.shape[-1]])
        counted = tf.abs(flat) <= _LARGEST  # False for NaN.
        x = tf.stop_gradient(tf.where(counted, flat, tf.zeros_like(flat)))
        values = (tf.cast(counted, tf.float64), x, tf.square(x))
        parts = replicated.sums([tf.reduce_sum(value, 0) for value in values])
        for new, part in zip(self._parts, parts, strict=True):
            new.assign_add(part)
        if not only_accumulate:
            self.finish_update()

    def finish_update(self) -> None:
        """Merges what was accumulated into the statistics.

        On several replicas, call it on all of them within `strategy.run`, or once outside.
        """
        if not self._built:
            return
        count, total, squares = (
            old + new for old, new in zip(self._sums, self._parts, strict=True)
        )
        mean = tf.math.divide_no_nan(total, count)
        variance = tf.maximum(tf.math.divide_no_nan(squares, count) - tf.square(mean), 0.0)
        std = tf.where(count > 0, tf.sqrt(variance), tf.ones_like(variance))
        for old, value in zip(self._sums, (count, total, squares), strict=True):
            old.assign(value)
        for new in self._parts:
            new.assign(tf.zeros_like(new))
        self.mean.assign(tf.cast(mean, tf.float32))
        self.std.assign(tf.cast(std, tf.float32))

    def __call__(self, input_: tf.Tensor) -> tf.Tensor:
        """Inputs <float32>[..., size], normalized and clipped."""
        self._build_once(input_)
        normalized = (tf.cast(input_, tf.float32) - self.mean) / (self.std + self._eps)
        return tf.clip_by_value(normalized, *self._clip_range)

    def get_logs(self) -> dict[str, Any]:
        """The statistics, <float32>[size] by name, for programs that log them."""
        if not self._built:
            return {}
        return {
            "normalizer/mean": self.mean.numpy(),
            "normalizer/std": self.std.numpy(),
        }

    def _build_once(self, input_: tf.Tensor) -> None:
        if not self._built:
            self.build(input_.shape)


class NormalizeObservationsWrapper(tf.Module):
    """A network that sees normalized observations.

    Numbers and bytes are normalized, and become float32; images, action masks and integers,
    which stand for choices, are not. In training, the observations of each batch change the
    statistics once its step is over.
    """

    def __init__(self, policy: Any, normalizer: Normalizer):
        """Wraps `policy`, a network in either call form of `call_network`."""
        super().__init__()
        self._policy = policy
        self._normalizer = normalizer
        finish = tf.function(normalizer.finish_update, autograph=False)
        self._finish = lambda: finish()  # An attribute would be part of exported models.
        self._vectors: frozenset[int] | None = None  # Of the observation's leaves.
        if hasattr(policy, "stacked"):  # Images, which are not normalized.
            self.stacked = policy.stacked

    def initial_state(self, *args: Any, **kwargs: Any) -> Nest:
        """The network's initial state."""
        return self._policy.initial_state(*args, **kwargs)

    def get_action(self, *args: Any, **kwargs: Any) -> Any:
        """The same as a call."""
        return self(*args, **kwargs)

    def __call__(
        self,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[Any, Nest]:
        """The network's outputs for the normalized observations, see `call_network`."""
        env_outputs = self._normalized(env_outputs, is_training)
        return call_network(
            self._policy, prev_actions, env_outputs, agent_state, unroll, is_training
        )

    def end_of_training_step_callback(self) -> None:
        """Finishes the update of the statistics; the learner calls it after each training step."""
        if replicated.several():  # They synchronize, which a nested tf.function does not allow.
            self._normalizer.finish_update()
        elif self._vectors:  # The normalizer has variables.
            self._finish()

    def get_Q(self, prev_action: Nest, env_output: EnvOutput, *args: Any, **kwargs: Any) -> Any:
        """The network's `get_Q` of the normalized observations."""
        return self._policy.get_Q(prev_action, self._normalized(env_output), *args, **kwargs)

    def get_V(self, prev_action: Nest, env_output: EnvOutput, *args: Any, **kwargs: Any) -> Any:
        """The network's `get_V` of the normalized observations."""
        return self._policy.get_V(prev_action, self._normalized(env_output), *args, **kwargs)

    def get_action_params(
        self, prev_action: Nest, env_output: EnvOutput, *args: Any, **kwargs: Any
    ) -> Any:
        """The network's `get_action_params` of the normalized observations."""
        env_output = self._normalized(env_output)
        return self._policy.get_action_params(prev_action, env_output, *args, **kwargs)

    def _normalized(self, env_outputs: EnvOutput, is_training: bool = False) -> EnvOutput:
        """Flattens and concatenates the observation, normalizes, and splits it again."""
        env_outputs = EnvOutput(*env_outputs)
        observation = without_mask(env_outputs.observation)
        rank = env_outputs.reward.shape.rank
        every = tf.nest.flatten(observation)
        if self._vectors is None:  # First call only: `stacked` changes shapes.
            self._vectors = frozenset(
                i
                for i, x in enumerate(every)
                if (tf.as_dtype(x.dtype).is_floating or x.dtype == tf.uint8)
                and not has_image_shape(x.shape[rank:], x.dtype)
            )
        chosen = sorted(self._vectors)
        if not chosen:
            return env_outputs
        parts = [every[i] for i in chosen]
        sizes = [math.prod(part.shape[rank:]) for part in parts]
        batch_shape = tf.shape(env_outputs.reward)
        flat = tf.concat(
            [
                tf.reshape(tf.cast(part, tf.float32), tf.concat([batch_shape, [size]], 0))
                for part, size in zip(parts, sizes, strict=True)
            ],
            axis=-1,
        )
        flat = tf.ensure_shape(flat, [*env_outputs.reward.shape, sum(sizes)])
        if is_training:
            self._normalizer.update(flat, only_accumulate=True)
        for i, normal in zip(chosen, tf.split(self._normalizer(flat), sizes, -1), strict=True):
            every[i] = tf.reshape(normal, tf.shape(every[i]))
        observation = tf.nest.pack_sequence_as(observation, every)
        return env_outputs._replace(observation=with_mask(observation, env_outputs.observation))


def normalized(network: tf.Module, config: ObservationConfig) -> tf.Module:
    """`network`, wrapped to receive normalized observations if `config` says so."""
    if not config.normalize_observations:
        return network
    return NormalizeObservationsWrapper(network, Normalizer())
