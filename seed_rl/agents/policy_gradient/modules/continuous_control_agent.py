"""The network of the on-policy agent, with the choices of "What Matters In On-Policy Reinforcement
Learning?" (Andrychowicz et al. 2020, arXiv 2006.05990, appendix B) as arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gin
import tensorflow as tf

from seed_rl.common.acting.action_masks import without_mask
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.networks.actor_critic import AgentOutput
from seed_rl.common.networks.encoders import flatten_observation
from seed_rl.common.networks.layers import Activation, Dense, Initializer, Layer, to_rows
from seed_rl.common.networks.recurrent import LSTMState, StackedLSTM
from seed_rl.common.normalization.input_normalization import InputNormalization
from seed_rl.common.types import EnvOutput

__all__ = ["AgentOutput", "ContinuousControlAgent", "swish"]

State = tuple[tuple[LSTMState, ...], ...]


@gin.configurable
def swish(input_activation: tf.Tensor) -> tf.Tensor:
    """Swish, x * sigmoid(x), of <float32>[...] (Ramachandran et al. 2017)."""
    return tf.nn.silu(input_activation)


@gin.configurable
class ContinuousControlAgent(tf.Module):
    """MLPs with or without LSTMs for policy and value, for vectors or nests of them.

    Despite its name, it suits any action distribution. The baseline is the output of the value
    head: with a reward normalizer, a normalized value.
    """

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        observation_normalizer: InputNormalization | None = None,
        num_layers_policy: int = 3,
        num_layers_value: int = 3,
        num_layers_rnn: int = 0,
        num_units_policy: int = 256,
        num_units_value: int = 256,
        num_units_rnn: int = 256,
        layer_normalizer: Callable[[], Callable[[tf.Tensor], tf.Tensor]] | None = None,
        shared: bool = False,
        residual_connections: bool = False,
        activation: str | Activation | None = None,
        kernel_init: str | Initializer = "glorot_uniform",
        last_kernel_init_value: str | Initializer | None = None,
        last_kernel_init_value_scaling: float | None = None,
        last_kernel_init_policy: str | Initializer | None = None,
        last_kernel_init_policy_scaling: float | None = None,
        correct_observations: bool = False,
        std_independent_of_input: bool = False,
        input_clipping: float | None = None,
    ):
        """Creates layers; the first call creates their variables.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          observation_normalizer: normalizes the observations; its statistics change only by
            `update_observation_normalization_statistics`. None: observations are used as they are.
          num_layers_policy: dense layers of the policy's MLP, before the head.
          num_layers_value: dense layers of the value's MLP; without effect if `shared`.
          num_layers_rnn: LSTM layers between each MLP and its head.
          num_units_policy: units of each of the policy's dense layers.
          num_units_value: units of each of the value's dense layers; without effect if `shared`.
          num_units_rnn: units of each LSTM layer.
          layer_normalizer: creates a normalizer for each dense layer, such as
            `@tf.keras.layers.LayerNormalization`; it is applied before the activation.
          shared: whether policy and value share MLP and LSTMs, those of the policy.
          residual_connections: whether layers add their inputs to their outputs, where the sizes
            are equal.
          activation: of the dense layers, a function or the name of one of Keras; None: tanh.
          kernel_init: initializer of the dense layers, by name or an initializer of Keras.
          last_kernel_init_value: of the value head; None: `kernel_init`.
          last_kernel_init_value_scaling: factor of the value head's initial weights; None: 1.
          last_kernel_init_policy: of the policy head; None: `kernel_init`.
          last_kernel_init_policy_scaling: factor of the policy head's initial weights; None: 1.
          correct_observations: whether a trainable scale and shift keep the network's outputs as
            they were when the statistics of the observations change.
          std_independent_of_input: whether the parameters of the standard deviations are learned
            without looking at the observation.
          input_clipping: bound on the absolute value of normalized observations.

        Raises:
          UserError: `std_independent_of_input` with actions that have no standard deviation, or
            `correct_observations` without `observation_normalizer`.
        """
        super().__init__(name="continuous_control_agent")
        if correct_observations and observation_normalizer is None:
            raise UserError(
                "ContinuousControlAgent.correct_observations needs an observation_normalizer."
            )
        if std_independent_of_input and not _has_std(parametric_action_distribution):
            raise UserError(
                "ContinuousControlAgent.std_independent_of_input needs continuous actions with a "
                "standard deviation; set it to False."
            )
        self._distribution = parametric_action_distribution
        self._observation_normalizer = observation_normalizer
        self._correct_observations = correct_observations
        self._input_clipping = input_clipping
        self._event_rank: int | None = None  # Of the first leaf of observations.

        def torso(num_layers: int, num_units: int, name: str) -> _Torso:
            return _Torso(
                num_layers,
                num_units,
                [num_units_rnn] * num_layers_rnn,
                _activation(activation),
                lambda: _initializer(kernel_init),
                layer_normalizer,
                residual_connections,
                name,
            )

        names = ["shared"] if shared else ["policy", "value"]
        self._torsos = [torso(num_layers_policy, num_units_policy, f"{names[0]}_torso")]
        if not shared:
            self._torsos.append(torso(num_layers_value, num_units_value, "value_torso"))
        param_size = parametric_action_distribution.param_size
        self._policy = _Head(
            param_size,
            param_size // 2 if std_independent_of_input else param_size,
            _initializer(last_kernel_init_policy or kernel_init, last_kernel_init_policy_scaling),
            "policy_logits",
        )
        self._value = _Head(
            1,
            1,
            _initializer(last_kernel_init_value or kernel_init, last_kernel_init_value_scaling),
            "baseline",
        )

    def initial_state(self, batch_size: int | tf.Tensor) -> State:
        """State at the start of an environment's life; () without LSTM."""
        states = tuple(torso.core.initial_state(batch_size) for torso in self._torsos)
        return states if any(states) else ()

    def get_action(self, input_: tuple[Nest, EnvOutput], core_state: State) -> tuple[Any, State]:
        """The same as `__call__` for one step, for existing code that calls it by this name."""
        return self(input_, core_state)

    def update_observation_normalization_statistics(self, observations: Nest) -> None:
        """Updates the statistics that normalize observations, if there are any.

        Args:
          observations: nest of [batch, ...] or [time, batch, ...]. The network must have been
            called before.
        """
        if self._observation_normalizer is None:
            return
        observations = without_mask(observations)
        first = tf.nest.flatten(observations)[0]
        assert self._event_rank is not None, "The network has no variables yet: call it first."
        rows = flatten_observation(observations, first.shape.rank - self._event_rank)
        self._observation_normalizer.update_normalization_statistics(rows)

    def __call__(
        self,
        input_: tuple[Nest, EnvOutput],
        core_state: State,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[AgentOutput, State]:
        """Runs one step, or all steps of an unroll.

        Args:
          input_: (previous actions, `EnvOutput` or a tuple of its five fields), nests of
            [batch, ...], or of [time, batch, ...] if `unroll`; `done` resets the state before its
            step.
          core_state: state before the first step.
          unroll: whether there is a time dimension.
          is_training: ignored.

        Returns:
          (AgentOutput, state after the last step).
        """
        del is_training
        env_outputs = EnvOutput(*input_[1])
        done = env_outputs.done
        # One row per step and environment: products of matrices, not of stacks of them.
        rows = self._inputs(without_mask(env_outputs.observation), 2 if unroll else 1)
        states = core_state or ((),) * len(self._torsos)
        features, new_state = [], []
        for torso, state in zip(self._torsos, states, strict=True):
            torso_features, torso_state = torso(rows, state, done, unroll)
            features.append(torso_features)
            new_state.append(torso_state)
        policy_logits = self._policy(features[0])
        baseline = self._value(features[-1])
        if unroll:
            leading = tf.shape(done)
            baseline = tf.reshape(baseline, leading)
            policy_logits = tf.reshape(
                policy_logits, tf.concat([leading, policy_logits.shape[1:]], axis=0)
            )
        else:
            baseline = tf.squeeze(baseline, axis=-1)
        policy_logits = masked(policy_logits, env_outputs.observation)
        action = self._distribution.sample(policy_logits)
        return AgentOutput(action, policy_logits, baseline), tuple(new_state) if core_state else ()

    def _inputs(self, observation: Nest, num_leading: int) -> tf.Tensor:
        """Observations as normalized rows, <float32>[rows, n]."""
        self._event_rank = tf.nest.flatten(observation)[0].shape.rank - num_leading
        rows = flatten_observation(observation, num_leading)
        normalizer = self._observation_normalizer
        if normalizer is not None:
            if not normalizer.initialized:
                with tf.init_scope():
                    normalizer.init_normalization_stats(rows.shape[-1], self._correct_observations)
            rows = normalizer.normalize(rows)
        if self._input_clipping is not None:
            rows = tf.clip_by_value(rows, -self._input_clipping, self._input_clipping)
        if normalizer is not None and self._correct_observations:
            rows = normalizer.correct(rows)
        return rows


class _Torso(tf.Module):
    """Dense layers of one size, then LSTM layers of one size."""

    def __init__(
        self,
        num_layers: int,
        num_units: int,
        lstm_sizes: list[int],
        activation: Activation,
        make_initializer: Callable[[], Initializer],
        layer_normalizer: Callable[[], Callable[[tf.Tensor], tf.Tensor]] | None,
        residual_connections: bool,
        name: str,
    ):
        super().__init__(name=name)
        self._activation = activation
        self._residual = residual_connections
        self._layers = [
            Dense(num_units, None, make_initializer(), name=f"dense_{i}") for i in range(num_layers)
        ]
        self._normalizers = [layer_normalizer() for _ in self._layers] if layer_normalizer else []
        self._recurrent = bool(lstm_sizes)
        self.core = StackedLSTM(lstm_sizes, name="core")

    def __call__(
        self, rows: tf.Tensor, state: Any, done: tf.Tensor, unroll: bool
    ) -> tuple[tf.Tensor, tuple[LSTMState, ...]]:
        """Maps <float32>[rows, n] to (features <float32>[rows, m], new state)."""
        for i, layer in enumerate(self._layers):
            outputs = layer(rows)
            if self._normalizers:
                outputs = self._normalizers[i](outputs)
            outputs = self._activation(outputs)
            same_size = rows.shape[-1] == outputs.shape[-1]
            rows = rows + outputs if self._residual and same_size else outputs
        if not self._recurrent:
            return rows, ()
        if unroll:
            rows = tf.reshape(rows, tf.concat([tf.shape(done), rows.shape[1:]], axis=0))
        rows, state = self.core(rows, state, done, unroll)
        return to_rows(rows), state


class _Head(Layer):
    """A dense layer whose last outputs may be independent of its inputs: learned biases alone."""

    def __init__(
        self, num_outputs: int, num_dependent: int, kernel_initializer: Initializer, name: str
    ):
        super().__init__(name=name)
        self._num_outputs = num_outputs
        self._num_dependent = num_dependent
        self._kernel_initializer = kernel_initializer
        self.kernel: tf.Variable | None = None
        self.bias: tf.Variable | None = None

    def __call__(self, rows: tf.Tensor) -> tf.Tensor:
        """Maps <float32>[rows, n] to <float32>[rows, num_outputs]."""
        if self.kernel is None:
            shape = [rows.shape[-1], self._num_dependent]
            self.kernel = self.add_variable("kernel", lambda: self._kernel_initializer(shape))
            self.bias = self.add_variable("bias", lambda: tf.zeros([self._num_outputs]))
        kernel = self.kernel
        independent = self._num_outputs - self._num_dependent
        if independent:
            kernel = tf.pad(kernel, [[0, 0], [0, independent]])
        return tf.nn.bias_add(tf.matmul(rows, kernel), self.bias)


def _activation(activation: str | Activation | None) -> Activation:
    if activation is None:
        return tf.tanh
    return tf.keras.activations.get(activation)


def _initializer(initializer: str | Initializer, scaling: float | None = None) -> Initializer:
    """An initializer for one kernel, times `scaling`.

    An initializer of Keras returns the same numbers each time; a copy draws others, unless it has a
    seed.
    """
    initialize = tf.keras.initializers.get(initializer)
    if isinstance(initialize, tf.keras.initializers.Initializer):
        initialize = initialize.clone()
    return initialize if scaling is None else lambda shape: scaling * initialize(shape)


def _has_std(distribution: ParametricDistribution) -> bool:
    """Whether the parameters are the means of a vector, followed by its standard deviations."""
    event_shape = distribution.event_shape
    return (
        distribution.reparametrizable
        and len(event_shape) == 1
        and distribution.param_size == 2 * event_shape[0]
    )
