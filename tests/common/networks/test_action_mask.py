"""Masks of actions in every agent's network: what they forbid is -inf, and they are no input."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.policy_gradient import program as on_policy
from seed_rl.agents.r2d2.config import QNetworkConfig
from seed_rl.agents.r2d2.networks import create_network as create_r2d2
from seed_rl.agents.sac.config import SACNetworkConfig
from seed_rl.agents.sac.networks import create_network as create_sac
from seed_rl.common.acting.action_masks import KEY
from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.errors import UserError
from seed_rl.common.inference.network_calls import call_network
from seed_rl.common.networks.network_factory import create_network as create_actor_critic
from tests.helpers.network_inputs import env_outputs

T, B = 4, 3
VECTOR = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (36, 36, 1), np.uint8)


def masked_space(space, choices):
    return spaces.Dict({"observation": space, KEY: spaces.Box(0, 1, (choices,), np.uint8)})


def actor_critic(space, distribution):
    return create_actor_critic(space, distribution, mlp=MLPNetworkConfig(lstm_sizes=(4,)))


def r2d2(space, distribution):
    return create_r2d2(space, distribution.param_size, QNetworkConfig())


def sac_lstm(space, distribution):
    return create_sac(space, distribution, SACNetworkConfig(lstm_sizes=(4,)))


@pytest.mark.parametrize(
    "create, action_space, space",
    [
        (actor_critic, spaces.Discrete(3), VECTOR),
        (actor_critic, spaces.MultiDiscrete([2, 3]), IMAGE),
        (functools.partial(on_policy.create_agent, None), spaces.MultiDiscrete([2, 3]), VECTOR),
        (r2d2, spaces.Discrete(3), VECTOR),
        (r2d2, spaces.Discrete(3), IMAGE),
        (create_sac, spaces.Discrete(3), VECTOR),
        (sac_lstm, spaces.Discrete(3), VECTOR),
    ],
)
def test_networks_forbid_what_the_mask_forbids(create, action_space, space):
    """Guards against masks as inputs too: the other values are those of the network without."""
    distribution = get_parametric_distribution_for_action_space(action_space)
    choices, rng = distribution.param_size, np.random.default_rng(0)
    network = create(masked_space(space, choices), distribution)
    observation = rng.integers(0, 2, (T, B, *space.shape)).astype(space.dtype)
    mask = rng.integers(0, 2, (T, B, choices), np.uint8)
    mask[..., 0] = mask[..., -1] = 1  # One of each choice.
    mask[0, 0] = 0  # Padding.
    actions = tf.zeros((T, B, *action_space.shape), action_space.dtype)

    def run(observation):
        outputs = env_outputs((T, B), observation)
        output, _ = call_network(
            network, actions, outputs, network.initial_state(B), unroll=True, is_training=True
        )
        return output.action.numpy(), output[1].numpy()  # Logits or Q-values.

    (action, values), (_, free) = run({"observation": observation, KEY: mask}), run(observation)
    allowed = (mask == 1) | ~mask.any(-1, keepdims=True)
    np.testing.assert_array_equal(values, np.where(allowed, free, -np.inf))
    chosen = action if isinstance(action_space, spaces.MultiDiscrete) else action[..., np.newaxis]
    offsets = np.array([0, 2])[: chosen.shape[-1]]
    assert np.take_along_axis(allowed, chosen + offsets, axis=-1).all()
    with pytest.raises(UserError, match=f"has {choices + 1} entries, but there are {choices}"):
        run({"observation": observation, KEY: np.zeros((T, B, choices + 1), np.uint8)})
