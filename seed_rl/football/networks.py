"""Networks for Google Research Football."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.networks.actor_critic import ActorCritic, AgentOutput
from seed_rl.common.networks.encoders import TORSOS, ImpalaDeepTorso
from seed_rl.common.networks.layers import Conv2D
from seed_rl.common.networks.recurrent_network import AgentState
from seed_rl.football.observation import WORD_BITS, unpackbits

__all__ = ["AgentOutput", "AgentState", "GFootball"]


class GFootballTorso(ImpalaDeepTorso):
    """The residual network of Kurach et al. 2020: four sections instead of IMPALA's three."""

    filters = (16, 32, 32, 32)


class PackedPlanesEncoder(tf.Module):
    """Unpacks the planes of an observation and runs a torso on them."""

    def __init__(self, torso: str, compute_dtype: tf.DType | str):
        """Creates layers without variables.

        Args:
          torso: "gfootball", or one of `encoders.TORSOS`.
          compute_dtype: type of the arithmetic.
        """
        super().__init__(name="packed_planes_encoder")
        cls: Any = {**TORSOS, "gfootball": GFootballTorso}[torso]
        first = functools.partial(Conv2D, input_scale=1.0 / 255.0)
        self.torso = cls(first, compute_dtype)
        self.num_features: int = self.torso.num_features

    def initial_state(self, batch_size: int | tf.Tensor) -> tuple[()]:
        """The empty state: observations come stacked."""
        del batch_size
        return ()

    def __call__(
        self, observation: tf.Tensor, state: tuple[()], done: tf.Tensor, unroll: bool = False
    ) -> tuple[tf.Tensor, tuple[()]]:
        """Encodes [batch, height, width, words], or [time, batch, ...] if `unroll`.

        Args:
          observation: see `unpackbits`.
          state: the empty state.
          done: <bool>[batch] or [time, batch].
          unroll: whether there is a time dimension.

        Returns:
          ([(time,) batch, num_features], the empty state).
        """
        height, width, words = observation.shape[-3:]
        planes = unpackbits(tf.reshape(observation, [-1, height, width, words]))
        planes = tf.ensure_shape(planes, [None, height, width, WORD_BITS * words])
        features = self.torso(planes, use_float32=not unroll)
        shape = tf.concat([tf.shape(done), [self.num_features]], axis=0)
        return tf.reshape(features, shape), state


class GFootball(ActorCritic):
    """The network of the SEED RL paper: residual, with neither LSTM nor previous action and reward.

    Observations are those of `PackedBitsObservation`, of any size.
    """

    def __init__(
        self,
        parametric_action_distribution: ParametricDistribution,
        torso: str = "gfootball",
        compute_dtype: tf.DType | str = tf.float32,
    ):
        """Creates the layers; their variables are created by the first call.

        Args:
          parametric_action_distribution: distribution that the policy head parametrizes.
          torso: "gfootball", the paper's; or one of `encoders.TORSOS`.
          compute_dtype: type of matrix products and convolutions.
        """
        super().__init__(
            parametric_action_distribution,
            PackedPlanesEncoder(torso, compute_dtype),
            compute_dtype=compute_dtype,
        )
