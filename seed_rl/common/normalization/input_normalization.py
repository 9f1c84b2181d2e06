"""Normalization of a network's inputs by running statistics."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from seed_rl.common.normalization import replicated
from seed_rl.common.normalization.running_statistics import MeanStd


class InputNormalization(tf.Module):
    """Normalizes inputs, and can hide changes of the statistics from the network.

    `correct(normalize(x))` is not changed by `update_normalization_statistics`: a trainable scale
    and shift of each element make up for it, as in PopArt.

    Attributes:
      scale: <float32>[size], used by `correct` only.
      shift: <float32>[size], used by `correct` only.
    """

    def __init__(self, mean_std_tracker: MeanStd):
        """Prepares; `init_normalization_stats` creates the variables.

        Args:
          mean_std_tracker: statistics of the inputs.
        """
        super().__init__()
        self._tracker = mean_std_tracker
        self.scale: tf.Variable | None = None
        self.shift: tf.Variable | None = None

    @property
    def initialized(self) -> bool:
        """Whether `init_normalization_stats` was called."""
        return self.scale is not None

    def init_normalization_stats(self, input_size: int, corrected: bool = True) -> None:
        """Creates the variables.

        Call it in the scope of the training strategy, before the first use and before a checkpoint
        is restored: a network may do so in its first call, which the learner makes before it
        restores. Later calls with the same size do nothing.

        Args:
          input_size: elements of the inputs' last dimension.
          corrected: whether `correct` will be used; otherwise scale and shift are not trained.

        Raises:
          ValueError: the size was another before.
        """
        self._tracker.init(input_size)
        if not self.initialized:
            zeros = np.zeros(input_size, np.float32)
            self.scale = replicated.variable(zeros + 1, "scale", trainable=corrected)
            self.shift = replicated.variable(zeros, "shift", trainable=corrected)

    def normalize(self, x: tf.Tensor) -> tf.Tensor:
        """(x - mean) / std for x <float32>[..., size]."""
        return self._tracker.normalize(x)

    def correct(self, x: tf.Tensor) -> tf.Tensor:
        """Normalized inputs <float32>[..., size], scaled and shifted."""
        return x * self.scale + self.shift

    def update_normalization_statistics(self, data: tf.Tensor) -> None:
        """Takes inputs <float32>[..., size] into account, without elements that are not finite."""
        if self.scale is None or self.shift is None:
            raise ValueError("Call init_normalization_stats(input_size) before the first use.")
        mean, std = self._tracker.get_mean_std()
        self._tracker.update(data)
        new_mean, new_std = self._tracker.get_mean_std()
        self.shift.assign(self.shift + self.scale * (new_mean - mean) / std)
        self.scale.assign(self.scale * new_std / std)

    def get_mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        """(mean, std), <float32>[size]."""
        return self._tracker.get_mean_std()
