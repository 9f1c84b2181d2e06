"""Networks with actor, state value and critics, feed-forward and recurrent.

A network for SAC is a `tf.Module` with the methods of `ActorCriticMLP`. Those named `get_...` take
unrolls, [time, batch, ...]; feed-forward networks take any leading dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.sac.config import SACNetworkConfig
from seed_rl.common.distributions.base import Actions, ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest
from seed_rl.common.networks.encoders import flatten_observation
from seed_rl.common.networks.layers import Activation, Dense, Initializer, Layer, variance_scaling
from seed_rl.common.networks.recurrent import StackedLSTM
from seed_rl.common.networks.space_encoder import ACTIVATIONS, is_image, leaf_spaces
from seed_rl.common.types import EnvOutput

GOAL = "desired_goal"
"""Key of a dict observation: what to achieve."""

_FIRST_POLICY = 0.01
"""Scale of the actor's last kernel. Parameters near 0 make the first policy close to uniform, so
that the unrolls before training begins explore evenly."""


class AgentOutput(NamedTuple):
    """Output of a network for each step.

    Attributes:
      action: nest of [..., *event], sampled from the policy.
      policy_logits: <float32>[..., param_size], parameters of the action distribution.
    """

    action: Any
    policy_logits: Any


class MLP(tf.Module):
    """Dense layers; with `copies`, several MLPs of the same input that are computed as one."""

    def __init__(
        self,
        sizes: Sequence[int],
        hidden_activation: str | Activation | None = "relu",
        last_layer_activation: str | Activation | None = None,
        last_initializer: Initializer | None = None,
        copies: int | None = None,
        name: str = "mlp",
    ):
        """Creates layers without variables.

        Args:
          sizes: units of each layer.
          hidden_activation: of all layers but the last; its name in Keras, a function or None.
          last_layer_activation: of the last layer.
          last_initializer: of the last kernel; by default as of the others.
          copies: number of MLPs; None: one, without a dimension for copies.
          name: of the module.
        """
        super().__init__(name=name)
        self._layers = []
        for i, size in enumerate(sizes):
            last = i == len(sizes) - 1
            activation = last_layer_activation if last else hidden_activation
            initializer = last_initializer if last else None
            if initializer is None and activation in ACTIVATIONS:
                initializer = ACTIVATIONS[activation][1]
            options = (size, tf.keras.activations.get(activation), initializer)
            layer = DenseCopies(copies, *options) if copies else Dense(*options, name=f"dense_{i}")
            self._layers.append(layer)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[..., n] -> [..., units], or [rows, n] -> [copies, rows, units]."""
        for layer in self._layers:
            inputs = layer(inputs)
        return inputs


class DenseCopies(Layer):
    """Several dense layers as one batched product, with as many kernels and biases."""

    def __init__(
        self,
        copies: int,
        units: int,
        activation: Activation,
        kernel_initializer: Initializer | None,
        name: str = "dense_copies",
    ):
        """Creates a layer without variables; see `Dense`."""
        super().__init__(name=name)
        self._copies = copies
        self._units = units
        self._activation = activation
        self._kernel_initializer = kernel_initializer or variance_scaling()
        self.kernel: tf.Variable | None = None
        self.bias: tf.Variable | None = None

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        """[rows, n] or [copies, rows, n] -> [copies, rows, units]."""
        if self.kernel is None:
            shape = [inputs.shape[-1], self._units]
            self.kernel = self.add_variable(
                "kernel",
                lambda: tf.stack([self._kernel_initializer(shape) for _ in range(self._copies)]),
            )
            self.bias = self.add_variable("bias", lambda: tf.zeros([self._copies, 1, self._units]))
        return self._activation(tf.matmul(inputs, self.kernel) + self.bias)


def create_mlp(
    hidden_sizes: Sequence[int],
    hidden_activation: str | Activation | None,
    last_layer_activation: str | Activation | None,
) -> MLP:
    """Creates dense layers.

    Args:
      hidden_sizes: units of each layer, including the last.
      hidden_activation: of all layers but the last.
      last_layer_activation: of the last layer.
    """
    return MLP(hidden_sizes, hidden_activation, last_layer_activation)


class _ActorCritic(tf.Module):
    """What both forms share: how they act."""

    _distribution: ParametricDistribution

    def get_action(self, *args: Any, **kwargs: Any) -> tuple[AgentOutput, Nest]:
        """Same as a call, under the name that existing inference code uses."""
        return self(*args, **kwargs)

    def __call__(
        self,
        prev_action: Actions,
        env_output: EnvOutput,
        state: Nest,
        unroll: bool = False,
        is_training: bool = False,
    ) -> tuple[AgentOutput, Nest]:
        """Chooses actions for one step, or for all steps of an unroll.

        Args:
          prev_action: nest of [batch, ...], or [time, batch, ...] if `unroll`.
          env_output: `EnvOutput`, or any tuple of its five fields, of [batch, ...] or
            [time, batch, ...]; `done` resets the state before its step.
          state: before the first step.
          unroll: whether there is a time dimension.
          is_training: has no effect here.

        Returns:
          (AgentOutput, state after the last step).
        """
        del is_training
        steps = (prev_action, EnvOutput(*env_output))
        if not unroll:
            steps = tf.nest.map_structure(lambda t: t[tf.newaxis], steps)
        params, state = self._act(*steps, state)
        params = params if unroll else params[0]
        return AgentOutput(self._distribution.sample(params), params), state

    def _act(
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tuple[tf.Tensor, Nest]:
        """Policy parameters <float32>[time, batch, param_size] and the state after the unroll."""
        raise NotImplementedError


class ActorCriticMLP(_ActorCritic):
    """Feed-forward actor, V and critics on the observation, a vector or a nest of vectors."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        n_critics: int,
        mlp_sizes: Sequence[int],
        hidden_activation: str | Activation | None = "relu",
        last_layer_activation: str | Activation | None = None,
    ):
        """Creates layers; the first calls create their variables.

        Args:
          parametric_action_distribution: distribution that the actor parametrizes.
          n_critics: number of critics.
          mlp_sizes: units of the hidden layers of each actor, V and critic.
          hidden_activation: of the hidden layers.
          last_layer_activation: of the outputs.
        """
        super().__init__(name="actor_critic_mlp")
        self._distribution = parametric_action_distribution
        activations = (hidden_activation, last_layer_activation)

        def mlp(outputs: int, scale: float = 1.0, copies: int | None = None) -> MLP:
            return MLP([*mlp_sizes, outputs], *activations, variance_scaling(scale), copies)

        self._actor = mlp(parametric_action_distribution.param_size, _FIRST_POLICY)
        self._v = mlp(1)
        self._q = mlp(1, copies=n_critics)

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[()]:
        """The empty state."""
        del batch_size
        return ()

    def get_Q(  # noqa: N802 - the name that existing code uses.
        self, prev_action: Actions, env_output: EnvOutput, state: Nest, action: Actions
    ) -> tf.Tensor:
        """Values <float32>[time, batch, n_critics] of actions, nest of [time, batch, ...]."""
        del prev_action, state
        features = _features(env_output), self._distribution.action_features(action)
        inputs = tf.concat(features, axis=-1)
        values = self._q(tf.reshape(inputs, [-1, inputs.shape[-1]]))
        leading = tf.shape(inputs)[:-1]
        return tf.reshape(tf.transpose(values[..., 0]), tf.concat([leading, [values.shape[0]]], 0))

    def get_V(  # noqa: N802
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tf.Tensor:
        """Values <float32>[time, batch] of states."""
        del prev_action, state
        return self._v(_features(env_output))[..., 0]

    def get_action_params(
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tf.Tensor:
        """Parameters <float32>[time, batch, param_size] of the policy."""
        return self._act(prev_action, env_output, state)[0]

    def _act(
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tuple[tf.Tensor, Nest]:
        del prev_action
        return self._actor(_features(env_output)), state


class LSTMwithFeedForwardBranch(tf.Module):
    """An LSTM over the history beside dense layers for the present (Peng et al. 2018, appendix B).

    Dense layers, then the LSTM, on one input; dense layers on the other; dense layers on both.
    """

    def __init__(
        self,
        lstm_sizes: Sequence[int],
        pre_mlp_sizes: Sequence[int],
        post_mlp_sizes: Sequence[int],
        ff_mlp_sizes: Sequence[int],
        hidden_activation: str | Activation | None = "relu",
        last_layer_activation: str | Activation | None = None,
        last_initializer: Initializer | None = None,
    ):
        """Creates layers without variables.

        Args:
          lstm_sizes: units of each LSTM layer.
          pre_mlp_sizes: units of the dense layers before the LSTM.
          post_mlp_sizes: units of the dense layers after both branches; the last are the outputs.
          ff_mlp_sizes: units of the dense layers of the feed-forward branch.
          hidden_activation: of all dense layers but the last.
          last_layer_activation: of the outputs.
          last_initializer: of the kernel of the outputs.
        """
        super().__init__(name="lstm_with_feed_forward_branch")
        hidden = (hidden_activation, hidden_activation)
        self._pre = MLP(pre_mlp_sizes, *hidden, name="pre")
        self._lstm = StackedLSTM(lstm_sizes, name="core")
        self._ff = MLP(ff_mlp_sizes, *hidden, name="ff")
        last = (hidden_activation, last_layer_activation, last_initializer)
        self._post = MLP(post_mlp_sizes, *last, name="post")

    def initial_state(self, batch_size: int | tf.Tensor) -> Nest:
        """State before an environment's first step."""
        return self._lstm.initial_state(batch_size)

    def __call__(
        self,
        ff_input: tf.Tensor,
        recurrent_input: tf.Tensor,
        core_state: Nest,
        done: tf.Tensor,
        only_return_new_state: bool = False,
    ) -> Any:
        """Runs an unroll.

        Args:
          ff_input: <float32>[time, batch, n].
          recurrent_input: <float32>[time, batch, m].
          core_state: before the first step.
          done: <bool>[time, batch], true where the state is reset before the step.
          only_return_new_state: whether the outputs are not needed.

        Returns:
          (outputs <float32>[time, batch, units], state after the last step), or only the state.
        """
        recurrent, core_state = self._lstm(self._pre(recurrent_input), core_state, done, True)
        if only_return_new_state:
            return core_state
        features = tf.concat([recurrent, self._ff(ff_input)], axis=-1)
        return self._post(features), core_state


class ActorCriticLSTM(_ActorCritic):
    """Recurrent actor, V and critics, each with its own LSTM (Peng et al. 2018, appendix B).

    The LSTMs see observations, without the goal if there is one, and previous actions. The
    feed-forward branches see the whole observation; those of the critics also the action to judge.
    So neither another goal nor another action changes a recurrent state. The state of every LSTM is
    kept up to date while acting, because unrolls are stored with all of them.
    """

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        n_critics: int,
        lstm_sizes: Sequence[int],
        pre_mlp_sizes: Sequence[int],
        post_mlp_sizes: Sequence[int],
        ff_mlp_sizes: Sequence[int],
    ):
        """Creates layers; the first calls create their variables.

        Args:
          parametric_action_distribution: distribution that the actor parametrizes.
          n_critics: number of critics.
          lstm_sizes: units of each LSTM layer; see `LSTMwithFeedForwardBranch`.
          pre_mlp_sizes: units of the dense layers before the LSTM.
          post_mlp_sizes: units of the hidden layers after both branches.
          ff_mlp_sizes: units of the dense layers of the feed-forward branch.
        """
        super().__init__(name="actor_critic_lstm")
        self._distribution = parametric_action_distribution

        def branches(outputs: int, scale: float = 1.0) -> LSTMwithFeedForwardBranch:
            sizes = (lstm_sizes, pre_mlp_sizes, [*post_mlp_sizes, outputs], ff_mlp_sizes)
            last = variance_scaling(scale)
            return LSTMwithFeedForwardBranch(*sizes, last_initializer=last)

        self._actor = branches(parametric_action_distribution.param_size, _FIRST_POLICY)
        self._v = branches(1)
        self._q = [branches(1) for _ in range(n_critics)]

    def initial_state(self, batch_size: int | tf.Tensor) -> Nest:
        """States (actor, V, tuple of the critics') before an environment's first step."""
        actor, v, *q = (part.initial_state(batch_size) for part in (self._actor, self._v, *self._q))
        return actor, v, tuple(q)

    def get_Q(  # noqa: N802
        self, prev_action: Actions, env_output: EnvOutput, state: Nest, action: Actions
    ) -> tf.Tensor:
        """Values <float32>[time, batch, n_critics] of actions, nest of [time, batch, ...]."""
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        ff_input = tf.concat([ff_input, self._distribution.action_features(action)], axis=-1)
        critics = zip(self._q, state[2], strict=True)
        values = [q(ff_input, recurrent_input, its_state, done)[0] for q, its_state in critics]
        return tf.concat(values, axis=-1)

    def get_V(  # noqa: N802
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tf.Tensor:
        """Values <float32>[time, batch] of states."""
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        return self._v(ff_input, recurrent_input, state[1], done)[0][..., 0]

    def get_action_params(
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tf.Tensor:
        """Parameters <float32>[time, batch, param_size] of the policy."""
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        return self._actor(ff_input, recurrent_input, state[0], done)[0]

    def _act(
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tuple[tf.Tensor, Nest]:
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        params, actor = self._actor(ff_input, recurrent_input, state[0], done)
        v, *q = (
            part(ff_input, recurrent_input, its_state, done, only_return_new_state=True)
            for part, its_state in zip((self._v, *self._q), (state[1], *state[2]), strict=True)
        )
        return params, (actor, v, tuple(q))

    def _inputs(
        self, prev_action: Actions, env_output: EnvOutput
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(feed-forward input, recurrent input, done)."""
        env_output = EnvOutput(*env_output)
        observation = env_output.observation
        if isinstance(observation, Mapping) and GOAL in observation:
            observation = {key: part for key, part in observation.items() if key != GOAL}
        seen = _features(env_output._replace(observation=observation))
        recurrent_input = tf.concat(
            [seen, self._distribution.action_features(prev_action)], axis=-1
        )
        return _features(env_output), recurrent_input, env_output.done


def create_network(
    observation_space: spaces.Space[Any],
    distribution: ParametricDistribution,
    config: SACNetworkConfig | None = None,
) -> tf.Module:
    """The feed-forward form; the recurrent one if `lstm_sizes` has any units.

    In the recurrent form, the feed-forward branch has the layers of `mlp_sizes`, the layers before
    the LSTM and the hidden ones after it are its first and its last.

    Args:
      observation_space: of one environment.
      distribution: over actions.
      config: options.

    Raises:
      UserError: observations contain images.
    """
    config = config or SACNetworkConfig()
    if any(is_image(space) for space in tf.nest.flatten(leaf_spaces(observation_space))):
        raise UserError(
            f"SAC's networks take vectors, but observations contain images: {observation_space}. "
            "Train with vtrace or r2d2, or pass your own network to `learner_loop`."
        )
    sizes = config.mlp_sizes
    if any(config.lstm_sizes):
        return ActorCriticLSTM(
            distribution, config.n_critics, config.lstm_sizes, sizes[:1], sizes[-1:], sizes
        )
    return ActorCriticMLP(distribution, config.n_critics, sizes, config.mlp_activation)


def _features(env_output: EnvOutput) -> tf.Tensor:
    """The observation as <float32>[..., n]."""
    _, done, observation, _, _ = env_output
    return flatten_observation(observation, tf.shape(done))
