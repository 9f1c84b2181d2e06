"""PopArt: value targets of any scale (van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714).

A network predicts normalized values. When the statistics of the targets change, a scale and a shift
behind its last layer change with them, so that the unnormalized values stay the same.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from seed_rl.common.normalization import replicated
from seed_rl.common.normalization.running_statistics import MeanStd


class PopArt(tf.Module):
    """Normalizes value targets by their running statistics.

        value = popart.unnormalize_prediction(popart.correct_prediction(network_output))
        popart.update_normalization_statistics(targets)           # does not change `value`
        error = popart.normalize_target(targets) - popart.correct_prediction(network_output)

    Attributes:
      scale: <float32>[], trained with the network.
      shift: <float32>[], trained with the network.
    """

    def __init__(self, mean_std_tracker: MeanStd, compensate: bool = True):
        """Prepares; `init` creates the variables.

        Args:
          mean_std_tracker: statistics of the targets, of size 1.
          compensate: whether scale and shift make up for changes of the statistics.
        """
        super().__init__()
        self._tracker = mean_std_tracker
        self._compensate = compensate
        self.scale: tf.Variable | None = None
        self.shift: tf.Variable | None = None

    def init(self) -> None:
        """Creates the variables, with the values 1 and 0, mean 0 and standard deviation 1.

        Call it in the scope of the training strategy, before the first use and before a checkpoint
        is restored. Later calls do nothing.
        """
        if self.scale is None:
            self._tracker.init(1)
            self.scale = replicated.variable(np.ones((), np.float32), "scale", trainable=True)
            self.shift = replicated.variable(np.zeros((), np.float32), "shift", trainable=True)

    def normalize_target(self, x: tf.Tensor) -> tf.Tensor:
        """Value targets <float32>[...] as the network should predict them."""
        mean, std = self._mean_std()
        return (x - mean) / std

    def normalize_advantage(self, x: tf.Tensor) -> tf.Tensor:
        """Advantages <float32>[...] divided by the standard deviation of the targets."""
        return x / self._mean_std()[1]

    def correct_prediction(self, x: tf.Tensor) -> tf.Tensor:
        """The network's outputs <float32>[...] scaled and shifted: normalized values."""
        return x * self.scale + self.shift

    def unnormalize_prediction(self, x: tf.Tensor) -> tf.Tensor:
        """Values <float32>[...] of corrected predictions."""
        mean, std = self._mean_std()
        return x * std + mean

    def update_normalization_statistics(self, data: tf.Tensor) -> None:
        """Takes targets <float32>[...] into account, without those that are not finite."""
        if self.scale is None or self.shift is None:
            raise ValueError("Call init() before the first use of PopArt.")
        mean, std = self._mean_std()
        self._tracker.update(tf.expand_dims(data, -1))
        if not self._compensate:
            return
        new_mean, new_std = self._mean_std()
        self.scale.assign(self.scale * std / new_std)
        self.shift.assign((self.shift * std + mean - new_mean) / new_std)

    def _mean_std(self) -> tuple[tf.Tensor, tf.Tensor]:
        mean, std = self._tracker.get_mean_std()
        return mean[0], std[0]
