"""--normalize_observations, in the networks of the programs."""

import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.pqn import program as pqn
from seed_rl.agents.r2d2 import program as r2d2
from seed_rl.agents.sac import program as sac
from seed_rl.agents.vtrace import program as vtrace
from seed_rl.common.acting.action_masks import KEY
from seed_rl.common.config import options
from seed_rl.common.config.network_config import ObservationConfig
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.normalization.normalizer import NormalizeObservationsWrapper
from seed_rl.common.types import EnvOutput

T, B = 5, 3
ACTIONS = spaces.Discrete(3)


@pytest.mark.parametrize(
    "create_agent",
    [vtrace.create_agent, r2d2.create_agent, sac.create_agent, pqn.create_agent],
)
@pytest.mark.parametrize("on", [True, False])
def test_networks_see_normalized_observations(create_agent, on, monkeypatch):
    """Guards that inputs are those of NumPy, that masks still forbid, and that off means off."""

    def from_flags(cls):
        return cls(normalize_observations=on) if cls is ObservationConfig else cls()

    monkeypatch.setattr(options, "from_flags", from_flags)
    monkeypatch.setattr(pqn, "from_flags", from_flags)
    rng = np.random.default_rng(0)
    space = spaces.Dict(x=spaces.Box(-np.inf, np.inf, (4,)), **{KEY: spaces.Box(0, 1, (3,), "i1")})
    distribution = get_parametric_distribution_for_action_space(ACTIONS)
    tf.keras.utils.set_random_seed(0)
    network = create_agent(ACTIONS, space, distribution)
    x = (5 + 3 * rng.normal(size=(T, B, 4))).astype(np.float32)
    mask = np.tile(np.uint8([1, 0, 1]), (T, B, 1))
    actions = np.zeros((T, B), np.int32)

    def outputs(network, x):
        zeros, state = np.zeros((T, B), np.float32), network.initial_state(B)
        no, observation = np.zeros((T, B), bool), {"x": tf.constant(x), KEY: tf.constant(mask)}
        seen = EnvOutput(tf.constant(zeros), no, observation, no, zeros)
        output, _ = network(actions, seen, state, unroll=True, is_training=True)
        values = output.q_values if hasattr(output, "q_values") else output.policy_logits
        return values.numpy()

    assert isinstance(network, NormalizeObservationsWrapper) == on
    outputs(network, x)  # Creates the variables.
    if on:
        network.end_of_training_step_callback()
    inner = network._policy if on else network
    seen = np.clip((x - x.mean((0, 1))) / (x.std((0, 1)) + 1e-3), -5, 5) if on else x
    after = outputs(network, x)
    np.testing.assert_allclose(after, outputs(inner, seen), rtol=1e-4, atol=1e-6)
    assert np.isneginf(after[..., 1]).all() and np.isfinite(after[..., [0, 2]]).all()
