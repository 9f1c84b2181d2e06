"""What algorithms hand to their losses: weights, options, rewards, observations."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.agents.r2d2 import losses
from seed_rl.common.inference.inference import initialize
from seed_rl.common.learner.replay_pipeline import SampledUnrolls
from tests.helpers.programs.replicas_program import MAKERS, random_batch


def made(name):
    """An algorithm with initialized networks, and a batch for it."""
    tf.keras.utils.set_random_seed(1)
    algorithm = MAKERS[name]()
    initialize(algorithm, algorithm.network, algorithm.specs)
    batch = random_batch(np.random.default_rng(0), name, algorithm)
    return algorithm, tf.nest.map_structure(tf.constant, batch)


def test_r2d2_weighs_its_loss_and_mixes_priorities_as_told():
    """Guards against a biased prioritized replay, and against an ignored --priority_eta."""
    algorithm, batch = made("r2d2")
    object.__setattr__(algorithm.config, "priority_eta", 0.3)
    result = algorithm.loss(batch)
    networks = algorithm.network, algorithm.target_network
    td = losses.replay_errors(algorithm.config, *networks, *batch.unrolls)
    weights = batch.importance_weights / np.max(batch.importance_weights)
    np.testing.assert_allclose(result.loss, np.mean(weights * losses.unroll_losses(td)), rtol=1e-5)
    np.testing.assert_allclose(result.feedback[1], losses.priorities(td, 0.3), rtol=1e-5)


def test_r2d2_learns_from_its_own_rewards():
    """Guards bonuses, such as RND's, that would set priorities but never be learned from."""
    algorithm, batch = made("r2d2")
    algorithm.learning_rewards = lambda env_outputs: 2.0 * env_outputs.reward
    networks = algorithm.network, algorithm.target_network
    rewards = 2.0 * batch.unrolls.env_outputs.reward
    td = losses.replay_errors(algorithm.config, *networks, *batch.unrolls, rewards)
    np.testing.assert_allclose(algorithm.loss(batch).feedback[1], losses.priorities(td), rtol=1e-5)


@pytest.mark.parametrize("name", ["sac", "policy_gradient"])
def test_others_learn_from_their_own_rewards(name):
    def loss(own_rewards, doubled_batch):
        algorithm, batch = made(name)
        if own_rewards:
            algorithm.learning_rewards = lambda env_outputs: 2.0 * env_outputs.reward
        if doubled_batch:
            sampled = isinstance(batch, SampledUnrolls)
            unrolls = batch.unrolls if sampled else batch
            env = unrolls.env_outputs
            unrolls = unrolls._replace(env_outputs=env._replace(reward=2.0 * env.reward))
            batch = batch._replace(unrolls=unrolls) if sampled else unrolls
        return float(algorithm.update(batch, lambda loss: loss()).loss)

    own = loss(True, False)
    assert own == pytest.approx(loss(False, True), rel=1e-5)
    assert own != pytest.approx(loss(False, False), rel=1e-3)


def test_observation_statistics_count_each_observation_once():
    """The last step of an unroll is the first of the next."""
    algorithm, batch = made("policy_gradient")
    seen = []
    algorithm.network.update_observation_normalization_statistics = seen.append
    algorithm.update(batch, lambda loss: loss())
    np.testing.assert_array_equal(seen[0], batch.env_outputs.observation[:-1])
