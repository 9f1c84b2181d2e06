"""The V-trace agent as the learner sees it."""

import json

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium.spaces import Discrete

from seed_rl.agents.vtrace.algorithm import VTrace, create_job
from seed_rl.agents.vtrace.config import VTraceConfig, VTraceReplayConfig
from seed_rl.agents.vtrace.networks import AgentOutput
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.errors import UserError
from seed_rl.common.inference import finite_unrolls
from seed_rl.common.learner import variables
from seed_rl.common.parametric_distribution import categorical_distribution
from seed_rl.common.types import EnvOutput, Step, StoredUnrolls, Unroll
from tests.helpers.contexts import context
from tests.helpers.network_inputs import random_batch

SHAPE = (4, 5)
DISTRIBUTION = categorical_distribution(3, tf.int32)


def test_an_adjusted_entropy_cost_does_not_clip_the_network():
    """Guards the network's step size: a large cost has a gradient thousands of times larger."""
    config = VTraceConfig(target_entropy=0.2)
    algorithm = VTrace(config, context(lambda: random_batch(0)[0], DISTRIBUTION))
    (multiplier,) = variables.trainable_variables(algorithm.checkpointables()["entropy_cost"])
    (apart,) = algorithm.clipped_apart()
    assert apart is multiplier
    assert any(variable is multiplier for variable in algorithm.trainable_variables())


class MaskedAgent(tf.Module):
    """A network that forbids actions as the observation says."""

    def __init__(self):
        super().__init__()
        self.weights = tf.Variable(np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32))

    def __call__(self, prev_actions, env_outputs, agent_state, unroll, is_training):
        observation = env_outputs.observation
        outputs = tf.einsum("tbi,io->tbo", observation["body"], self.weights)
        logits = tf.where(observation["allowed"] > 0, outputs[..., :3], -np.inf)
        return AgentOutput(None, logits, outputs[..., 3]), agent_state


def test_an_unroll_that_is_not_finite_leaves_an_observation_that_allows_actions():
    """Guards such networks from NaN gradients of observations of zeros, which forbid everything."""
    config = VTraceConfig(kl_cost=0.1)
    algorithm = VTrace(config, context(MaskedAgent, DISTRIBUTION, num_envs=5))
    body = np.random.default_rng(2).normal(size=(*SHAPE, 2)).astype(np.float32)
    allowed = np.ones((*SHAPE, 3), np.float32)
    _, env_outputs, behaviour = random_batch(1, num_steps=3, p_done=0.0)
    # Environment 2 has other actions to choose from than the others have.
    forbidden = np.where(np.arange(SHAPE[1]) == 2, 0, 1)
    np.put_along_axis(allowed, np.broadcast_to(forbidden, SHAPE)[..., None], 0.0, axis=-1)
    actions = np.full(SHAPE, 2, np.int32)
    logits = np.where(allowed > 0, behaviour.policy_logits, -np.inf)
    body[1, 2] = np.nan
    env_outputs = env_outputs._replace(observation={"body": body, "allowed": allowed})
    outputs = behaviour._replace(action=actions, policy_logits=logits)
    stored = tf.nest.map_structure(
        tf.constant, StoredUnrolls(np.arange(5), (), Step(actions, env_outputs, outputs))
    )

    def learned(unrolls):
        with tf.GradientTape() as tape:
            loss = algorithm.loss(Unroll(unrolls.agent_state, *unrolls.steps)).loss
        return loss, tape.gradient(loss, algorithm.network.weights)

    mended = finite_unrolls.leave_out(stored, finite_unrolls.NonFiniteUnrolls())
    others = tf.nest.map_structure(
        lambda t: tf.gather(t, [0, 1, 3, 4], axis=1) if t.shape.rank > 1 else t, stored
    )
    for got, wanted in zip(learned(mended), learned(others), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7)


class Undecided(tf.Module):
    """All actions have the same probability."""

    def __call__(self, prev_actions, env_outputs, agent_state, unroll=False, is_training=False):
        size = tf.shape(prev_actions)[0]
        action = tf.random.uniform([size], maxval=9, dtype=tf.int32)
        return AgentOutput(action, tf.zeros([size, 9]), tf.zeros([size])), agent_state


@pytest.mark.parametrize(
    ("num_training_envs", "persistent"), [(1, []), (2, [1]), (4, [3]), (9, [6, 7, 8])]
)
def test_the_last_quarter_keeps_actions(num_training_envs, persistent):
    """Guards the environments' places, greedy evaluation, and that what is sent is recorded."""
    tf.random.set_seed(0)
    num_envs = num_training_envs + 2
    algorithm = VTrace(
        VTraceConfig(action_persistence=100.0),
        context(
            Undecided,
            categorical_distribution(9, tf.int32),
            actions=Discrete(9),
            num_envs=num_envs,
            num_eval_envs=2,
        ),
    )
    env_ids = np.repeat(np.arange(num_envs, dtype=np.int32), 2000)

    def kept(done, episode_step):
        size = len(env_ids)
        reward, false = np.zeros(size, np.float32), np.zeros(size, np.bool_)
        steps = np.full(size, episode_step, np.int32)
        env_outputs = EnvOutput(reward, np.full(size, done), reward, false, steps)
        inputs = tf.nest.map_structure(tf.constant, (np.full(size, 4, np.int32), env_outputs))
        acted = algorithm.act(algorithm.network, tf.constant(env_ids), *inputs, ())
        np.testing.assert_array_equal(acted.action, acted.agent_outputs.action)
        return (acted.action.numpy() == 4).reshape(num_envs, -1).mean(axis=1)

    at_random = np.repeat([1 / 9, 0], [num_training_envs, 2])
    expected = np.copy(at_random)
    expected[persistent] = 1 - 8 / 9 / 100  # What is drawn anew may be the same again.
    np.testing.assert_allclose(kept(False, 1), expected, atol=0.03)
    for done, episode_step in ((True, 1), (False, 0)):  # A lost life; an environment's first step.
        np.testing.assert_allclose(kept(done, episode_step), at_random, atol=0.03)


def test_persistence_is_refused_where_actions_are_not_one_choice():
    """Persistence of one component would not keep the whole action."""
    vtrace = VTraceConfig(action_persistence=8.0)
    with pytest.raises(UserError, match="action_persistence=8 needs actions that are one discrete"):
        create_job(lambda *_: wrap_for_agent(gymnasium.make("Pendulum-v1")), None, vtrace=vtrace)


class OnPolicy(VTrace):
    learns_from_replay = False


@pytest.mark.parametrize(
    ("algorithm", "ratio", "message"),
    [
        (OnPolicy, 1, "OnPolicy only learns from the actions of its latest policy"),
        (VTrace, 10**9, "and --replay_ratio=1,000,000,000 times as many of --unroll_length"),
    ],
)
def test_a_replay_that_cannot_work_is_refused(algorithm, ratio, message):
    """A loss that takes replayed data for new would learn nonsense; a batch must fit in memory."""
    replay = VTraceReplayConfig(replay_ratio=ratio)
    with pytest.raises(UserError, match=message):
        create_job(
            lambda *_: gymnasium.make("CartPole-v1"), None, replay=replay, algorithm=algorithm
        )


@pytest.mark.slow
def test_a_program_with_a_replay_trains_and_saves_it(train_to_end):
    """Guards flags, recurrent states on their way, the count of frames, and the checkpoint."""
    logdir = train_to_end(
        *("seed_rl.gym.vtrace_main", 4_000),
        "--replay_ratio=3",
        "--trust_region=0.1",
        "--batch_size=4",
        "--unroll_length=10",
        "--lstm_size=8",
        "--save_replay=always",
    )
    manifests = [json.loads(path.read_text()) for path in logdir.glob("**/replay.json")]
    assert max(each["state"]["limiter"]["inserted"] for each in manifests) >= 4_000 / 10
