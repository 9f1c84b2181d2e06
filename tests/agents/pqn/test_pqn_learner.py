"""PQN acts, explores less and less, learns, and is resumed."""

import functools

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl import experiment
from seed_rl.agents.policy_gradient.config import MinibatchSettings, StepConfig
from seed_rl.agents.pqn.algorithm import PQN, create_job
from seed_rl.agents.pqn.config import PQNConfig
from seed_rl.agents.pqn.networks import QNetwork
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import ConvNetworkConfig, MLPNetworkConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.errors import UserError
from seed_rl.common.learner.devices import copy_variables
from seed_rl.common.networks import network_factory
from seed_rl.common.run_files import run_record
from seed_rl.common.types import EnvOutput
from seed_rl.mujoco import toy_env
from tests.helpers.contexts import context
from tests.helpers.events import read_scalars
from tests.helpers.network_inputs import assert_unroll_equals_steps, random_steps

VECTOR = spaces.Box(-1.0, 1.0, (4,), np.float32)
MASKED = spaces.Dict(action_mask=spaces.MultiBinary(3), seen=VECTOR)

create_network = functools.partial(
    network_factory.create_network, layer_norm=True, network=QNetwork
)


def make_job(
    logdir,
    make_env,
    frames=8192,
    pqn=None,
    lstm_sizes=(),
    weights=None,
    epochs=4,
    unroll_length=16,
    **run,
):
    """A run with 32 environments of one actor; its training steps are not compiled."""
    tf.keras.utils.set_random_seed(1)
    network = ConvNetworkConfig(lstm_sizes=lstm_sizes), MLPNetworkConfig(mlp_sizes=(64,))
    mode = "shuffle" if lstm_sizes else "split"
    return create_job(
        lambda env_id, env_config: wrap_for_agent(make_env()),
        lambda _, observations, distribution: create_network(observations, distribution, *network),
        pqn=pqn or PQNConfig(final_epsilon=0.0, eval_epsilon=0.0, exploration_fraction=0.5),
        step=StepConfig(),
        settings=MinibatchSettings(mode, epochs_per_step=epochs, batches_per_step=4),
        optimizer=OptimizerConfig(learning_rate=3e-3, clip_norm=10.0),
        env_config={},
        device_config=DeviceConfig(jit="false"),
        run=RunConfig(
            logdir=str(logdir), **{"num_envs": 32, "env_batch_size": 32, "seed": 1, **run}
        ),
        config=LearnerConfig(
            total_environment_frames=frames,
            unroll_length=unroll_length,
            init_checkpoint=weights,
        ),
    )


def make_algorithm(pqn, **options):
    distribution = categorical_distribution(3, tf.int64, start=5)
    return PQN(
        pqn,
        MinibatchSettings(),
        context(
            lambda: create_network(MASKED, distribution),
            distribution,
            MASKED,
            spaces.Discrete(3, start=5),
            num_envs=4000,
            num_eval_envs=1000,
            **options,
        ),
    )


def steps_of(size, mask):
    """Outputs of environments that all allow the actions of `mask`."""
    seen = np.zeros((size, 4), np.float32)
    zeros = tf.zeros([size])
    return EnvOutput(
        zeros,
        tf.zeros([size], tf.bool),
        {"action_mask": tf.tile([mask], [size, 1]), "seen": seen},
        tf.zeros([size], tf.bool),
        tf.zeros([size], tf.int32),
    )


def test_a_recurrent_network_is_refused_before_it_acts():
    """Guards against the refusal after minutes, when the first unrolls are complete."""
    distribution = categorical_distribution(3, tf.int64)
    settings = MinibatchSettings("split")
    images = spaces.Box(0, 255, (42, 42, 1), np.uint8)

    def create(**network):
        config = ConvNetworkConfig(**network)
        factory = functools.partial(create_network, images, distribution, config)
        PQN(PQNConfig(), settings, context(factory, distribution, images, spaces.Discrete(3)))

    create(stack_size=2)  # Frames are stacked before they are split.
    with pytest.raises(UserError, match="recurrent state.*--batch_mode=shuffle"):
        create(stack_size=2, lstm_sizes=(8,))


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.0])
def test_training_environments_explore_at_epsilon_and_others_at_their_own(epsilon):
    """Guards both rates, and that neither greedy nor random actions are masked ones."""
    tf.keras.utils.set_random_seed(1)
    config = PQNConfig(initial_epsilon=epsilon, eval_epsilon=0.2)
    algorithm = make_algorithm(config)
    outputs = steps_of(4000, [1, 0, 1])
    acted = algorithm.act(algorithm.network, tf.range(4000), tf.zeros([4000]), outputs, ())
    q_values, actions = acted.agent_outputs.policy_logits.numpy(), acted.action.numpy() - 5
    assert np.isneginf(q_values[:, 1]).all() and set(actions) <= {0, 2}
    greedy = actions == q_values.argmax(-1)
    # Half of the random actions are greedy, too.
    assert greedy[:3000].mean() == pytest.approx(1 - epsilon / 2, abs=0.05)
    assert greedy[3000:].mean() == pytest.approx(0.9, abs=0.05)
    evaluated, _ = algorithm.evaluate(tf.zeros([4000]), outputs, ())
    assert (evaluated.numpy() - 5 == q_values.argmax(-1)).mean() == pytest.approx(0.9, abs=0.05)
    np.testing.assert_array_equal(acted.agent_outputs.action, acted.action)
    np.testing.assert_array_equal(acted.agent_outputs.baseline, q_values.max(-1))


def test_a_network_of_another_number_of_actions_is_refused():
    """Guards against TensorFlow's messages, and actions that an environment does not have."""
    algorithm = make_algorithm(PQNConfig())
    wrong = create_network(VECTOR, categorical_distribution(4, tf.int64))
    outputs = steps_of(2, [1, 0, 1])._replace(observation=np.zeros((2, 4), np.float32))
    with pytest.raises(UserError, match=r"policy_logits are \(2, 4\), but must be \[batch, 3\]"):
        algorithm.act(wrong, tf.range(2), tf.zeros([2], tf.int64), outputs, ())


def test_epsilon_falls_linearly():
    """To the end of the exploration, also where a copy of the network acts."""
    config = PQNConfig(initial_epsilon=0.9, final_epsilon=0.1, exploration_fraction=0.2)
    steps = LearnerConfig(total_environment_frames=100, batch_size=1, unroll_length=1)
    algorithm = make_algorithm(config, config=steps)
    shown = []
    for train_steps in (5, 10, 20, 21, 100):
        algorithm.after_step((), train_steps)
        shown.append(algorithm.logs()["train/epsilon"])
    np.testing.assert_allclose(shown, [0.7, 0.5, 0.1, 0.1, 0.1], rtol=1e-6)
    copy = algorithm.make_network()  # For another inference device.
    for network in (algorithm.network, copy):
        algorithm.act(network, tf.range(4), tf.zeros([4]), steps_of(4, [1, 1, 1]), ())
    copy_variables(algorithm.network, [copy])
    assert copy.epsilon.numpy() == np.float32(0.1)
    at_once = make_algorithm(PQNConfig(exploration_fraction=0.0, final_epsilon=0.25))
    assert at_once.logs()["train/epsilon"] == 0.25


@pytest.mark.parametrize("lstm_sizes", [(), (6,)])
def test_an_unroll_of_the_network_equals_its_steps(lstm_sizes):
    space = spaces.Dict(image=spaces.Box(0, 255, (40, 40, 1), np.uint8), vector=VECTOR)
    network = create_network(
        space,
        categorical_distribution(3, tf.int64),
        ConvNetworkConfig(torso="impala_shallow", stack_size=3, lstm_sizes=lstm_sizes),
        MLPNetworkConfig(mlp_sizes=(8,)),
    )
    steps = random_steps(space, 6, 2, 3)
    output = assert_unroll_equals_steps(network, *steps, tolerance=1e-4)
    np.testing.assert_array_equal(output.action, tf.argmax(output.policy_logits, -1))
    assert not any("baseline" in v.name for v in network.variables)


@pytest.mark.parametrize(
    "space", [spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.MultiDiscrete([2, 3])]
)
def test_other_actions_are_refused(tmp_path, space):
    class Env(toy_env.ToyEnv):
        def __init__(self):
            super().__init__()
            self.action_space = space

    with pytest.raises(UserError, match=r"PQN needs a Discrete action space, .*ppo"):
        make_job(tmp_path, Env)


def logged(job, steps=0, gradient_steps=0):
    """(Learning rate, epsilon) when a learner begins, which then saves after so many steps."""
    learner = job.create_learner()
    with learner._opened():
        logs = learner.logs()
        for _ in range(steps):
            job.algorithm.trained_on(job.config.batch_size)
            learner.train_steps += 1
        job.optimizer.iterations.assign_add(gradient_steps)
        learner.save()
    return logs["train/learning_rate"], logs["train/epsilon"]


def test_schedules_continue_at_their_frames_if_sizes_change(tmp_path):
    """Guards them from a count of steps that had other sizes.

    Exploration takes half of 8,192 frames.
    """
    start = logged(make_job(tmp_path, toy_env.ToyEnv), steps=4, gradient_steps=4 * 16 + 3)
    assert start == pytest.approx((3e-3, 1.0))
    # 2,048 frames of steps of 512. Equal sizes leave the count of gradient steps as it is.
    same = make_job(tmp_path, toy_env.ToyEnv)
    assert logged(same) == pytest.approx((3e-3 * (1 - 67 / 256), 0.5))
    assert same.optimizer.iterations == 67
    fewer = {"epochs": 1, "unroll_length": 8}
    other = make_job(tmp_path, toy_env.ToyEnv, **fewer)
    assert logged(other, steps=4, gradient_steps=16) == pytest.approx((3e-3 * 0.75, 0.5))
    other.algorithm.after_step((), 5)
    assert other.algorithm.logs()["train/epsilon"] == pytest.approx(0.5 - 256 / 4096)
    # 3,072 frames, in a run that is now twice as long.
    longer = make_job(tmp_path, toy_env.ToyEnv, frames=16_384, epochs=4, unroll_length=16)
    assert logged(longer) == pytest.approx((3e-3 * (1 - 3 / 16), 1 - 3072 / 8192))
    assert longer.optimizer.iterations == 6 * 16


@pytest.mark.slow
def test_the_cue_is_named(tmp_path):
    """The optimum is 3, chance gives 1. Evaluation is greedy.

    A resumed run explores no more, a new one with its weights as any other.
    """
    sizes = dict(frames=12_000, num_envs=36, env_batch_size=36, num_eval_envs=4)
    job = make_job(tmp_path, toy_env.ToyEnv, **sizes)
    result = experiment.run(job, callbacks=())
    assert result.returns[:100].mean() < 2  # It was not right from the beginning.
    assert result.returns[-300:].mean() > 0.97 * 3
    greedy = [row.episode_return for row in result.episodes if row.evaluation]
    assert np.mean(greedy[-50:]) > 0.97 * 3
    again = make_job(tmp_path, toy_env.ToyEnv, **sizes)
    assert again.algorithm.logs()["train/epsilon"] == 1.0
    again.create_learner().train()  # Ends at once.
    assert again.algorithm.logs()["train/epsilon"] == 0.0
    new = make_job(tmp_path / "new", toy_env.ToyEnv, **sizes, weights=str(tmp_path))
    new.create_learner()
    assert new.algorithm.logs()["train/epsilon"] == 1.0


@pytest.mark.nightly
def test_the_cue_is_remembered(tmp_path):
    """A recurrent network, trained on shuffled whole unrolls: 1 with memory, 1/3 without."""
    job = make_job(tmp_path, toy_env.ToyMemoryEnv, frames=30_000, lstm_sizes=(32,))
    assert experiment.run(job, callbacks=()).returns[-300:].mean() > 0.95


@pytest.mark.nightly
def test_cart_pole(tmp_path):
    """A random policy balances for 22 steps."""
    pqn = PQNConfig(
        trace_lambda=0.95, reward_scaling=0.1, final_epsilon=0.01, exploration_fraction=0.3
    )
    job = make_job(tmp_path, lambda: gymnasium.make("CartPole-v1"), 60_000, pqn)
    assert experiment.run(job, callbacks=()).returns[-20:].mean() > 150


@pytest.mark.nightly
def test_atari(train_to_end):
    """The real programs: convolutions, frame stacks, the sizes of the preset."""
    pytest.importorskip("ale_py")
    logdir = train_to_end(
        *("seed_rl.atari.pqn_main", 1024 * 4 * 3),
        *("--game=Pong", "--log_period_secs=0.1", "--exploration_fraction=0.5"),
    )
    record = run_record.read(logdir)
    assert (record["unroll_length"], record["layer_norm"]) == (128, True)
    metrics = read_scalars(logdir)
    assert {"train/losses/value", "train/value/prediction", "train/epsilon"} <= metrics.keys()
    assert all(np.isfinite(values).all() for values in metrics.values())
    assert metrics["train/skipped_fraction"].max() == 0
    assert metrics["train/epsilon"][-1] == pytest.approx(0.001)
