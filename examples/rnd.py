"""Random network distillation (Burda et al. 2018): a bonus for observations not seen before.

`RND` knows no agent; `with_rnd.py` adds it to any algorithm, `rnd_vtrace.py` and `rnd_r2d2.py` do.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from examples.rnd_config import RNDConfig
from seed_rl.common.learner import variables
from seed_rl.common.learner.replicas import BatchMean
from seed_rl.common.types import EnvOutput, Specs


class RND(tf.Module):
    """Predicts the outputs of a fixed random network; errors are large on new observations."""

    def __init__(self, config: RNDConfig, specs: Specs, size: int = 64):
        """Creates both networks; call it in the scope of the training strategy.

        Args:
          config: weights.
          specs: of one environment.
          size: units of each layer.
        """
        super().__init__()
        self._config = config
        layer = tf.keras.layers.Dense
        self._random = tf.keras.Sequential([layer(size, "relu"), layer(size)])
        self._predictor = tf.keras.Sequential([layer(size, "relu"), layer(size), layer(size)])
        self._errors(_zeros(specs.env_output.observation))  # Creates the variables.

    def trainable(self) -> list[tf.Variable]:
        """The predictor's variables."""
        return variables.trainable_variables(self._predictor)

    def bonus(self, env_outputs: EnvOutput) -> tf.Tensor:
        """What to add to the reward of the action that led to each observation.

        The first observation of an episode follows no action and earns no bonus.

        Args:
          env_outputs: nest of [time, batch, ...].

        Returns:
          <float32>[time, batch], without gradient.
        """
        bonus = self._config.bonus * tf.stop_gradient(self._errors(env_outputs.observation))
        return tf.where(env_outputs.done, tf.zeros_like(bonus), bonus)

    def loss(self, env_outputs: EnvOutput) -> tf.Tensor:
        """The predictor's loss <float32>[] on [time, batch] steps."""
        mean = BatchMean(1.0 - tf.cast(env_outputs.abandoned, tf.float32))
        return self._config.bonus_loss * mean(self._errors(env_outputs.observation))

    def _errors(self, observation: Any) -> tf.Tensor:
        """Mean squared error of each prediction, <float32>[time, batch]."""
        flat = [
            tf.reshape(_scaled(part), [*_time_and_batch(part), _size(part)])
            for part in tf.nest.flatten(observation)
        ]
        inputs = tf.concat(flat, axis=-1)
        target = tf.stop_gradient(self._random(inputs))
        return tf.reduce_mean(tf.square(target - self._predictor(inputs)), axis=-1)


def _zeros(specs: Any) -> Any:
    return tf.nest.map_structure(lambda s: tf.zeros([1, 1, *s.shape], s.dtype), specs)


def _scaled(part: tf.Tensor) -> tf.Tensor:
    """Vectors as they are, images to [0, 1]: the bonus grows with the square of its inputs."""
    scaled = tf.cast(part, tf.float32)
    return scaled / part.dtype.max if part.dtype.is_integer else scaled


def _time_and_batch(part: tf.Tensor) -> list[tf.Tensor]:
    return tf.unstack(tf.shape(part)[:2])


def _size(part: tf.Tensor) -> int:
    return int(tf.TensorShape(part.shape[2:]).num_elements())
