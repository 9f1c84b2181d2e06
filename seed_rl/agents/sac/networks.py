"""Networks with actor, state value and critics, feed-forward and recurrent.

A network for SAC is a `tf.Module` with the methods of `ActorCriticMLP`. Those named `get_...` take
unrolls, [time, batch, ...]. A call may return actions instead of an `AgentOutput`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.sac.config import SACNetworkConfig
from seed_rl.common.acting.action_masks import without_mask
from seed_rl.common.acting.goals import DESIRED
from seed_rl.common.distributions.base import Actions, ParametricDistribution
from seed_rl.common.errors import UserError
from seed_rl.common.nest import Nest
from seed_rl.common.networks.action_mask import masked
from seed_rl.common.networks.encoders import flatten_observation
from seed_rl.common.networks.layers import Activation, variance_scaling
from seed_rl.common.networks.mlp import MLP, FeedForwardBranch, LSTMwithFeedForwardBranch
from seed_rl.common.networks.space_encoder import has_images
from seed_rl.common.types import EnvOutput

_NEAR_ZERO = variance_scaling(0.01)
"""Of the actor's last kernel. Parameters near 0 make the first policy cover the range of
actions in every state, so that unrolls collected before training explore."""


class AgentOutput(NamedTuple):
    """Output of a network for each step.

    Attributes:
      action: nest of [..., *event], sampled from the policy.
      policy_logits: <float32>[..., param_size], parameters of the action distribution.
    """

    action: Any
    policy_logits: Any


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
    """What both forms have in common. Each part has two inputs and a state, see `branches`."""

    _distribution: ParametricDistribution
    _actor: Any
    _v: Any
    _q: Sequence[Any]
    _n_quantiles: int

    def initial_state(self, batch_size: int | tf.Tensor) -> Nest:
        """States (actor, V, tuple of the critics') before an environment's first step; () without
        memory.
        """
        actor, v, *q = (part.initial_state(batch_size) for part in (self._actor, self._v, *self._q))
        return (actor, v, tuple(q)) if tf.nest.flatten((actor, v, q)) else ()

    def _parts(self, state: Nest) -> tuple[Nest, Nest, tuple[Nest, ...]]:
        return state or ((), (), ((),) * len(self._q))

    def get_Q(  # noqa: N802 - the name that existing code uses.
        self, prev_action: Actions, env_output: EnvOutput, state: Nest, action: Actions
    ) -> tf.Tensor:
        """Values <float32>[time, batch, n_critics] of actions, nest of [time, batch, ...].

        With several quantiles, those of the return, [time, batch, n_critics, n_quantiles].
        """
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        ff_input = tf.concat([ff_input, self._distribution.action_features(action)], axis=-1)
        critics = zip(self._q, self._parts(state)[2], strict=True)
        values = [q(ff_input, recurrent_input, its_state, done)[0] for q, its_state in critics]
        q = tf.concat(values, axis=-1)
        if self._n_quantiles == 1:
            return q
        shape = [q.shape[-1] // self._n_quantiles, self._n_quantiles]
        return tf.reshape(q, tf.concat([tf.shape(q)[:-1], shape], axis=0))

    def get_V(  # noqa: N802
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tf.Tensor:
        """Values <float32>[time, batch] of states."""
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        return self._v(ff_input, recurrent_input, self._parts(state)[1], done)[0][..., 0]

    def get_action_params(
        self, prev_action: Actions, env_output: EnvOutput, state: Nest
    ) -> tf.Tensor:
        """Parameters <float32>[time, batch, param_size] of the policy."""
        ff_input, recurrent_input, done = self._inputs(prev_action, env_output)
        params = self._actor(ff_input, recurrent_input, self._parts(state)[0], done)[0]
        return masked(params, EnvOutput(*env_output).observation)

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
        steps = (prev_action, env_output)
        if not unroll:
            steps = tf.nest.map_structure(lambda t: t[tf.newaxis], steps)
        ff_input, recurrent_input, done = self._inputs(*steps)
        actor, of_v, of_q = self._parts(state)
        params, actor = self._actor(ff_input, recurrent_input, actor, done)
        # Unrolls are stored with the states of all parts.
        v, *critics = (
            part(ff_input, recurrent_input, its_state, done, only_return_new_state=True)
            for part, its_state in zip((self._v, *self._q), (of_v, *of_q), strict=True)
        )
        params = masked(params if unroll else params[0], EnvOutput(*env_output).observation)
        output = AgentOutput(self._distribution.sample(params), params)
        return output, (actor, v, tuple(critics)) if state else ()

    def _inputs(
        self, prev_action: Actions, env_output: EnvOutput
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(feed-forward input, recurrent input, done)."""
        env_output = EnvOutput(*env_output)
        done, observation = env_output.done, without_mask(env_output.observation)
        leading = tf.shape(done)
        ff_input = flatten_observation(observation, len(done.shape), leading)
        if isinstance(observation, Mapping) and DESIRED in observation:
            observation = {key: part for key, part in observation.items() if key != DESIRED}
        seen = flatten_observation(observation, len(done.shape), leading)
        previous = self._distribution.action_features(prev_action)
        return ff_input, tf.concat([seen, previous], axis=-1), done


class ActorCriticMLP(_ActorCritic):
    """Feed-forward actor, V and critics on the observation, a vector or a nest of vectors."""

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        n_critics: int,
        mlp_sizes: Sequence[int],
        hidden_activation: str | Activation | None = "relu",
        last_layer_activation: str | Activation | None = None,
        n_quantiles: int = 1,
    ):
        """Creates layers; the first calls create their variables.

        Args:
          parametric_action_distribution: distribution that the actor parametrizes.
          n_critics: number of critics.
          mlp_sizes: units of the hidden layers of each actor, V and critic.
          hidden_activation: of the hidden layers.
          last_layer_activation: of the outputs.
          n_quantiles: outputs of each critic.
        """
        super().__init__(name="actor_critic_mlp")
        self._distribution = parametric_action_distribution
        self._n_quantiles = n_quantiles
        activations = (hidden_activation, last_layer_activation)

        def part(outputs: int, **options: Any) -> FeedForwardBranch:
            return FeedForwardBranch(MLP([*mlp_sizes, outputs], *activations, **options))

        params = parametric_action_distribution.param_size
        self._actor = part(params, last_initializer=_NEAR_ZERO)
        self._v = part(1)
        self._q = [part(n_quantiles, copies=n_critics)]  # All in one product.


class ActorCriticLSTM(_ActorCritic):
    """Recurrent actor, V and critics, each with its own LSTM (Peng et al. 2018, appendix B).

    The LSTMs see observations, without the goal if there is one, and previous actions. The
    feed-forward branches see the whole observation; those of the critics also see the action to be
    judged. So neither another goal nor another action changes a recurrent state.
    """

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        n_critics: int,
        lstm_sizes: Sequence[int],
        pre_mlp_sizes: Sequence[int],
        post_mlp_sizes: Sequence[int],
        ff_mlp_sizes: Sequence[int],
        n_quantiles: int = 1,
        hidden_activation: str | Activation | None = "relu",
    ):
        """As `ActorCriticMLP`, with the layers of `LSTMwithFeedForwardBranch`.

        `post_mlp_sizes` are only those of hidden layers.
        """
        super().__init__(name="actor_critic_lstm")
        self._distribution = parametric_action_distribution
        self._n_quantiles = n_quantiles

        def branches(outputs: int, **options: Any) -> LSTMwithFeedForwardBranch:
            sizes = (lstm_sizes, pre_mlp_sizes, [*post_mlp_sizes, outputs], ff_mlp_sizes)
            return LSTMwithFeedForwardBranch(*sizes, hidden_activation, **options)

        params = parametric_action_distribution.param_size
        self._actor = branches(params, last_initializer=_NEAR_ZERO)
        self._v = branches(1)
        self._q = [branches(n_quantiles) for _ in range(n_critics)]


def create_network(
    observation_space: spaces.Space[Any],
    distribution: ParametricDistribution,
    config: SACNetworkConfig | None = None,
) -> tf.Module:
    """The feed-forward form; the recurrent one if `lstm_sizes` has any units.

    In the recurrent form, the feed-forward branch has all layers of `mlp_sizes`; before the LSTM
    there is a layer of the first of these sizes, and after it a hidden layer of the last.

    Args:
      observation_space: of one environment.
      distribution: over actions.
      config: options.

    Raises:
      UserError: observations contain images.
    """
    config = config or SACNetworkConfig()
    if has_images(observation_space):
        raise UserError(
            f"SAC's networks take vectors, but observations contain images: {observation_space}. "
            "Train with vtrace, ppo or r2d2, or a network of your own (docs/tutorials.md)."
        )
    sizes, critics = config.mlp_sizes, (distribution, config.n_critics)
    quantiles, activation = config.n_quantiles, config.mlp_activation
    if any(config.lstm_sizes):
        layers = (config.lstm_sizes, sizes[:1], sizes[-1:], sizes)
        return ActorCriticLSTM(*critics, *layers, quantiles, activation)
    return ActorCriticMLP(*critics, sizes, activation, n_quantiles=quantiles)
