"""Interfaces of action distributions and of their parametrization by network outputs."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Actions = Any
"""<dtype>[..., *event], or a tuple or dict of these for mixed action spaces."""


class Distribution(abc.ABC):
    """A batch of action distributions with given parameters.

    Below, `...` are the batch dimensions and `event` is the shape of one action: [] for a discrete
    choice, [n] for a vector of n components, whose log probabilities are summed.
    """

    @abc.abstractmethod
    def sample(self) -> Actions:
        """One action per distribution, [..., *event]."""

    @abc.abstractmethod
    def mode(self) -> Actions:
        """The action that greedy evaluation takes, [..., *event]."""

    @abc.abstractmethod
    def log_prob(self, actions: Actions) -> tf.Tensor:
        """Log probability (density for continuous actions), <float32>[...]; `actions` broadcast."""

    def sample_and_log_prob(self, differentiable: bool = True) -> tuple[Actions, tf.Tensor]:
        """One action per distribution and its log probability.

        May be exact where `log_prob` of the rounded action is not.

        Args:
          differentiable: whether gradients flow from the action, if it is reparametrizable, to the
            parameters; otherwise it is a constant, as policy gradients need it.

        Returns:
          ([..., *event], <float32>[...]).
        """
        actions = self.sample()
        if not differentiable:
            actions = tf.nest.map_structure(tf.stop_gradient, actions)
        return actions, self.log_prob(actions)

    @abc.abstractmethod
    def entropy(self) -> tf.Tensor:
        """Entropy in nats, <float32>[...]."""

    @abc.abstractmethod
    def kl_divergence(self, other: Any) -> tf.Tensor:
        """KL(self || other) in nats, <float32>[...]; `other` must be of the same class."""


class ParametricDistribution:
    """A family of action distributions, parametrized by a network's output vector."""

    def __init__(
        self,
        param_size: int,
        create_dist: Callable[[tf.Tensor], Distribution],
        event_shape: tuple[int, ...] = (),
        action_features: Callable[[Actions], tf.Tensor] | None = None,
        reparametrizable: bool = False,
    ):
        """Creates a family.

        Args:
          param_size: number of parameters of one distribution.
          create_dist: maps parameters <float32>[..., param_size] to distributions.
          event_shape: shape of one action; ignored for actions that are nests.
          action_features: maps actions to <float32>[..., n] for networks that see the previous
            action: one-hot for choices, the numbers themselves for continuous actions. By default,
            casts actions of `event_shape` to <float32>.
          reparametrizable: whether gradients flow from samples to parameters.
        """
        self._param_size = param_size
        self._create_dist = create_dist
        self._action_features = action_features
        self.event_shape = tuple(event_shape)
        self._reparametrizable = reparametrizable

    def __call__(self, params: tf.Tensor) -> Distribution:
        """The distributions with parameters <float32>[..., param_size]."""
        return self._create_dist(tf.convert_to_tensor(params))

    @property
    def create_dist(self) -> Callable[[tf.Tensor], Distribution]:
        """The function from parameters to distributions."""
        return self._create_dist

    @property
    def param_size(self) -> int:
        """Number of parameters of one distribution."""
        return self._param_size

    @property
    def reparametrizable(self) -> bool:
        """Whether gradients flow from samples to parameters."""
        return self._reparametrizable

    def sample(self, parameters: tf.Tensor) -> Actions:
        """One action per row of <float32>[..., param_size]."""
        return self(parameters).sample()

    def mode(self, parameters: tf.Tensor) -> Actions:
        """The greedy action per row of <float32>[..., param_size]."""
        return self(parameters).mode()

    def log_prob(self, parameters: tf.Tensor, actions: Actions) -> tf.Tensor:
        """Log probability of `actions`, <float32>[...]."""
        return self(parameters).log_prob(actions)

    def entropy(self, parameters: tf.Tensor) -> tf.Tensor:
        """Entropy in nats, <float32>[...]."""
        return self(parameters).entropy()

    def kl_divergence(self, parameters_a: tf.Tensor, parameters_b: tf.Tensor) -> tf.Tensor:
        """KL(a || b) in nats, <float32>[...]."""
        return self(parameters_a).kl_divergence(self(parameters_b))

    def action_features(self, actions: Actions) -> tf.Tensor:
        """Actions as input of a network, <float32>[..., n]."""
        if self._action_features is not None:
            return self._action_features(actions)
        features = tf.cast(actions, tf.float32)
        return features if self.event_shape else features[..., tf.newaxis]
