"""The path of R2D2's experience: into the replay, sampled, saved, shut down."""

import dataclasses
from functools import partial

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces

from seed_rl.agents.r2d2 import algorithm as r2d2
from seed_rl.agents.r2d2 import learner, losses
from seed_rl.agents.r2d2.algorithm import R2D2, create_job
from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.agents.r2d2.networks import AgentOutput, DuelingLSTM
from seed_rl.agents.sac import algorithm as sac
from seed_rl.agents.vtrace.networks import MLPandLSTM
from seed_rl.common.config.device_config import DeviceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.discrete import categorical_distribution
from seed_rl.common.errors import UserError
from seed_rl.common.learner import variables
from seed_rl.common.networks.encoders import VectorEncoder
from seed_rl.common.replay import ReplayConfig
from seed_rl.testing.envs import LifeStepEnv, TimeLimitEnv
from tests.helpers.contexts import context
from tests.helpers.in_process import Run, values
from tests.helpers.replays import stored
from tests.helpers.waiting import wait_until

SHORT = R2D2Config(burn_in=2, n_steps=2, update_target_every_n_step=3)


def goes_on(algorithm, inserted):
    """Whether more than `inserted` unrolls are in the count of the run."""
    return algorithm.unrolls_consumed > inserted


def play(run, num_unrolls):
    """Plays until this many unrolls have reached the replay."""
    actions = run.step(None, reset=True)
    while run.algorithm.unrolls_consumed < num_unrolls:
        actions = run.step(actions)


@pytest.mark.parametrize("truncate", [False, True])
def test_unrolls_in_the_replay(truncate):
    """Guards what is stored: consecutive steps, actions taken, overlap, initial priorities."""
    with Run(lambda: LifeStepEnv(5, truncate), SHORT, num_envs=2, num_eval_envs=1) as run:
        run.start()
        play(run, 4)
        replay = run.algorithm.replay
        unrolls, priorities = stored(replay.storage, np.arange(4))
        observations = unrolls.env_outputs.observation
        assert observations.shape == (2 + 4 + 1, 4, 4)
        # One environment only: the other one evaluates.
        assert len(np.unique(observations[..., 0])) == 1
        np.testing.assert_array_equal(unrolls.prev_actions[1:], unrolls.agent_outputs[:-1])
        # The last burn_in + 1 steps of an unroll begin the next one.
        np.testing.assert_array_equal(observations[-3:, :-1], observations[:3, 1:])
        period = 6 if truncate else 5
        positions = np.arange(7)[:, None] + 4 * np.arange(4)
        np.testing.assert_array_equal(observations[..., 2], positions % period)
        np.testing.assert_array_equal(
            unrolls.env_outputs.abandoned[1:], (positions[1:] % period == 0) & truncate
        )
        # The weights have not changed, so training would give the same priorities.
        agent = run.algorithm.network
        td = losses.replay_errors(
            SHORT,
            agent,
            agent,
            *tf.nest.map_structure(tf.constant, tuple(unrolls)),
        )
        np.testing.assert_allclose(losses.priorities(td), priorities, rtol=1e-4)


def test_actions_that_the_network_masks_are_never_taken():
    """Guards acting and evaluating with forbidden actions, such as illegal moves of a game."""

    class Masking(tf.Module):
        """Values action 1 and forbids all but it and 3."""

        def __call__(self, prev_actions, env_outputs, state, unroll=False, is_training=False):
            shape = tf.shape(env_outputs.reward)
            masked = tf.constant([-np.inf, 2.0, -np.inf, 1.0])
            q_values = tf.broadcast_to(masked, tf.concat([shape, [4]], 0))
            return AgentOutput(tf.ones(shape, tf.int32), q_values), state

    config = R2D2Config(burn_in=2, eval_epsilon=1.0)
    with Run(lambda: LifeStepEnv(5, num_actions=4), config) as run:
        run.algorithm.network = Masking()
        size = 100
        outputs = tf.nest.map_structure(
            lambda s: tf.zeros([size, *s.shape], s.dtype), run.specs.env_output
        )
        arguments = tf.zeros([size], tf.int64), outputs, ()
        acted = run.algorithm.act(run.algorithm.network, tf.zeros([size], tf.int32), *arguments)
        assert set(acted.action.numpy()) == {1, 3}
        evaluated, _ = run.algorithm.evaluate(*arguments)
        assert set(evaluated.numpy()) == {1, 3}


def test_feedback_and_target_network():
    """Guards that new priorities reach the replay and when the target network is renewed."""
    run = Run(lambda: LifeStepEnv(5), SHORT)
    with run:
        run.start()
        run.act()
        algorithm = run.algorithm
        first = values(algorithm.network)
        for a, b in zip(first, values(algorithm.target_network), strict=True):
            np.testing.assert_array_equal(a, b)
        compared = 0
        for step in range(1, 7):
            _, (indices, priorities) = run.train()
            algorithm.before_save()  # All updates are written.
            snapshot = algorithm.replay.storage.snapshot()
            at = indices.numpy() - snapshot.oldest_key
            there = at >= 0  # The actor continues, and new unrolls replace old ones.
            written = snapshot.priorities[at[there]]
            np.testing.assert_allclose(written, priorities.numpy()[there], rtol=1e-6)
            compared += there.sum()
            agent, target = values(algorithm.network), values(algorithm.target_network)
            same = all(np.array_equal(a, t) for a, t in zip(agent, target, strict=True))
            assert same == (step % 3 == 0)
            if step < 3:
                assert all(np.array_equal(f, t) for f, t in zip(first, target, strict=True))
    assert compared and np.all(algorithm.logs()["replay/priorities"] > 0)
    assert run.actor_error is None


@pytest.mark.slow
@pytest.mark.parametrize("save_replay", [pytest.param("never", marks=pytest.mark.nightly), "stop"])
def test_checkpoint_and_resume(tmp_path, save_replay):
    """Guards that a resumed run continues with target network, frames and, if wanted, replay."""
    config = R2D2Config(burn_in=1, n_steps=2)
    replay = ReplayConfig(replay_buffer_size=100, replay_buffer_min_size=4, save_replay=save_replay)

    def make_run(seed):
        return Run(lambda: LifeStepEnv(5), config, replay, seed=seed)

    with make_run(0) as run:
        run.start()
        run.act()
        for _ in range(2):
            run.train()
        running, stopped = tmp_path / "running", tmp_path / "stopped"
        inserted = {}
        for directory in (running, stopped):
            run.algorithm.before_save()
            run.manager(directory).save(1)
            inserted[directory] = int(run.algorithm.checkpointables()["inserted_unrolls"].numpy())
            run.store.close()
        target = values(run.algorithm.target_network)
        assert 0 < inserted[running] <= inserted[stopped]
    for directory, saved in ((running, False), (stopped, save_replay == "stop")):
        with make_run(1) as resumed:
            assert resumed.manager(directory).restore_latest() == 1
            resumed.train_steps = run.train_steps  # The learner saves them itself.
            algorithm = resumed.algorithm
            assert algorithm.unrolls_consumed == inserted[directory]
            assert (len(algorithm.replay) > 0) == saved
            resumed.start()
            for a, b in zip(target, values(algorithm.target_network), strict=True):
                np.testing.assert_array_equal(a, b)
            resumed.act()
            resumed.train()
            wait_until(partial(goes_on, algorithm, inserted[directory]))


def test_frames_of_the_warm_up_survive_a_stop():
    """Guards `returns.csv`, whose rows beyond the resumed frame are removed."""
    replay = ReplayConfig(replay_buffer_size=100, replay_buffer_min_size=90)
    with Run(lambda: LifeStepEnv(5), SHORT, replay) as run:
        run.start()
        run.act()
        wait_until(lambda: run.algorithm.unrolls_consumed > 20)
        run.algorithm.before_save()
        assert int(run.algorithm.checkpointables()["inserted_unrolls"].numpy()) > 20


class NotANumberEnv(LifeStepEnv):
    """Every second episode, the reward of one step is too large or its observation is NaN."""

    def step(self, action):
        observation, reward, *rest = super().step(action)
        if self._step == 3 and self._episode % 4 == 1:
            reward = 1e30
        if self._step == 3 and self._episode % 4 == 3:
            observation = np.full_like(observation, np.nan)
        return observation, reward, *rest


def test_what_is_not_a_number_stays_out_of_the_replay(caplog):
    """Guards the run from an environment's NaN: training continues without its unrolls."""
    with Run(lambda: NotANumberEnv(12), SHORT) as run:
        run.start()
        run.act()
        for _ in range(20):
            metrics, (_, priorities) = run.train()
            assert np.isfinite(float(metrics["loss"])) and np.isfinite(priorities).all()
    assert run.actor_error is None and run.algorithm.check() is None
    assert "They are left out of training" in caplog.text
    assert "of environments " in caplog.text


def test_frames_are_those_inserted():
    """Guards that a run is counted by experience, not by how often the replay was sampled."""
    replay = ReplayConfig(replay_buffer_size=50, replay_buffer_min_size=4, replay_ratio=8.0)
    with Run(lambda: LifeStepEnv(5), SHORT, replay) as run:
        run.start()
        assert not run.algorithm.ready()
        run.act()
        for _ in range(20):
            run.train()
        assert run.algorithm.ready()
        stats = run.algorithm.replay.stats()
        # Inserts may be going on between the two counts.
        assert 0 <= run.algorithm.unrolls_consumed - stats.inserted <= 16
        assert stats.sampled >= 20 * 8


def test_schedules_end_with_the_run():
    """Guards a learning rate that has not fallen to 0, as filling the replay trains nothing."""
    asked = []

    def create_optimizer(steps):
        asked.append(steps)
        return tf.keras.optimizers.Adam(), lambda _: 1e-3

    create_job(
        lambda *_: gymnasium.make("CartPole-v1"),
        lambda action, *_: DuelingLSTM(int(action.n), VectorEncoder((8,)), 8, 8),
        create_optimizer,
        run=RunConfig(num_envs=2, run_mode="learner"),
        config=LearnerConfig(total_environment_frames=1000, unroll_length=10, batch_size=2),
        r2d2=R2D2Config(),
        replay=ReplayConfig(replay_buffer_size=50, replay_buffer_min_size=20, replay_ratio=4.0),
        optimizer=OptimizerConfig(),
        device_config=DeviceConfig(),
    ).algorithm.close()
    assert asked == [(1000 // 10 - 20) * 4 // 2]


def test_closing_ends_what_waits_for_experience():
    """Guards shutdown while there is nothing to train on: no hang, and batches come to an end."""
    with Run(lambda: LifeStepEnv(5), SHORT) as run:
        run.start()
        run.store.close()
        with pytest.raises(tf.errors.OutOfRangeError):
            run.train()
        run.algorithm.check()  # Nothing went wrong.


def test_closing_ends_what_waits_for_training():
    """Guards shutdown under back-pressure: replay, queue and actor all wait for the learner."""
    replay = ReplayConfig(
        replay_buffer_size=50, replay_buffer_min_size=1, replay_ratio=8.0, replay_ratio_slack=8
    )
    run = Run(lambda: LifeStepEnv(5), SHORT, replay)
    with run:
        run.start()
        run.act()
        while run.store.counters().blocked == 0:
            run.store.episodes()
    assert run.actor_error is None
    assert run.algorithm.replay.stats().inserted <= 50


def test_divergence_is_told():
    """Guards the message of a network that gives NaN, and that the learner does not hang."""
    with Run(lambda: LifeStepEnv(5), SHORT) as run:
        run.start()
        for variable in variables.variables(run.algorithm.network):
            variable.assign(tf.fill(variable.shape, np.nan))
        run.act()
        with pytest.raises(tf.errors.OutOfRangeError):
            run.train()
        with pytest.raises(UserError, match="diverged.*--learning_rate"):
            run.algorithm.check()


class InHalfPrecision(DuelingLSTM):
    def __call__(self, *args, **kwargs):
        output, state = super().__call__(*args, **kwargs)
        return output._replace(q_values=tf.cast(output.q_values, tf.bfloat16)), state


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            lambda n: DuelingLSTM(n + 1, VectorEncoder((8,)), 8, 8),
            r"q_values are \(1, 4\), but must",
        ),
        (
            lambda n: MLPandLSTM(categorical_distribution(n, tf.int64), (8,), (8,)),
            r"must return AgentOutput\(action, q_values\) of .*, but AgentOutput has no q_values",
        ),
        (
            lambda n: InHalfPrecision(n, VectorEncoder((8,)), 8, 8),
            "q_values is bfloat16, but must be float32",
        ),
    ],
)
def test_networks_of_other_outputs_are_refused(network, message):
    """Guards against tracebacks, and actions that an environment does not have."""
    with pytest.raises(UserError, match=message):
        R2D2(SHORT, ReplayConfig(), context(lambda: network(3)))


@pytest.mark.parametrize("agent", [r2d2, sac], ids=["r2d2", "sac"])
def test_warm_ups_of_all_learners_count(agent, monkeypatch):
    """Each fills its own replay. Guards a run of two learners that would never train."""
    unrolls = {"replay_buffer_min_size": 600, "priority_exponent": 0.0}

    def create(*addresses):
        config = LearnerConfig(unroll_length=5, total_environment_frames=5000)

        def make_job(create_env, create_agent, create_algorithm, *_, device_config, **__):
            learners = device_config.learners
            create_algorithm(dataclasses.replace(context(list, config=config), learners=learners))

        monkeypatch.setattr(agent, "make_job", make_job)
        agent.create_job(
            *(lambda *_: None,) * 2,
            config=config,
            replay=ReplayConfig(**unrolls),
            device_config=DeviceConfig(learner_addresses=",".join(addresses)),
        )

    with pytest.raises(UserError, match="5 frames for each of 2 learners = 6,000 frames, and"):
        create("a:1", "b:1")
    with pytest.raises(AttributeError):  # Goes on to the network, which is none.
        create()


class StartsAtFive(LifeStepEnv):
    """Actions 5, 6 and 7; fails at others, and notes those it gets."""

    taken: set = set()

    def __init__(self):
        super().__init__(5)
        self.action_space = spaces.Discrete(3, start=5)

    def step(self, action):
        assert self.action_space.contains(action)
        self.taken.add(action)
        return super().step(action)


def test_actions_that_do_not_start_at_zero():
    with Run(StartsAtFive, SHORT, num_envs=3) as run:
        run.start()
        play(run, 40)
        unrolls, _ = stored(run.algorithm.replay.storage, np.arange(4))
        np.testing.assert_array_equal(unrolls.prev_actions[1:], unrolls.agent_outputs[:-1] + 5)
        run.train()
    assert StartsAtFive.taken == {5, 6, 7}


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_evaluation_tries_random_actions_now_and_then(epsilon):
    """Guards the played and exported policy in games that wait for a button."""
    config = R2D2Config(burn_in=2, n_steps=2, eval_epsilon=epsilon)
    with Run(lambda: LifeStepEnv(5, num_actions=4), config) as run:
        size = 8000
        env_output = tf.nest.map_structure(
            lambda s: tf.zeros([size, *s.shape], s.dtype), run.specs.env_output
        )
        state = run.algorithm.network.initial_state(size)
        evaluate = tf.function(run.algorithm.evaluate, autograph=False)
        actions, _ = evaluate(tf.zeros([size], tf.int64), env_output, state)
    assert actions.dtype == run.specs.action.dtype
    counts = np.sort(np.bincount(actions, minlength=4)) / size
    expected = np.array([epsilon / 4] * 3 + [1 - 0.75 * epsilon])
    np.testing.assert_allclose(counts, expected, atol=0.015 if epsilon else 0)


def test_truncated_episodes_are_bootstrapped():
    """Guards the value of a task that only a time limit ends: all rewards 1, gamma 0.9, Q = 10.

    Taken for terminations, the limit of 4 steps would hold Q below 3.5.
    """
    config = R2D2Config(
        burn_in=0,
        n_steps=2,
        discounting=0.9,
        update_target_every_n_step=10,
        value_function_rescaling=False,
    )
    replay = ReplayConfig(replay_buffer_size=200, replay_buffer_min_size=20, replay_ratio=8.0)
    with Run(
        lambda: TimeLimitEnv(4), config, replay, num_envs=8, batch_size=16, learning_rate=1e-2
    ) as run:
        run.start()
        run.act()
        for _ in range(400):
            metrics, _ = run.train()
        assert 8.0 < float(metrics["q/value"]) < 12.0


@pytest.mark.parametrize(
    "changes, message",
    [
        (dict(unroll_length=4), "--unroll_length=4 is shorter than --n_steps=5"),
        (dict(total_environment_frames=50_000), "= 50,000 frames, and --total_environment_fr"),
        (dict(num_eval_envs=2), "--num_eval_envs=2 leaves no environment to train on"),
        (dict(env_name="Pendulum-v1"), "Discrete action space"),
        (dict(replay_memory_gb=1e-4), r"20,000 unrolls is expected to need(.|\n)*x 20,000 unrolls"),
    ],
)
def test_options_that_do_not_fit(changes, message, tmp_path):
    env_name = changes.pop("env_name", "CartPole-v1")
    run = dict(num_envs=2, logdir=str(tmp_path), run_mode="learner")
    run.update((k, changes.pop(k)) for k in list(changes) if k == "num_eval_envs")
    config = dict(unroll_length=10)
    of_learner = ("unroll_length", "total_environment_frames")
    config.update((k, changes.pop(k)) for k in list(changes) if k in of_learner)
    with pytest.raises(UserError, match=message):
        learner.learner_loop(
            lambda *_: gymnasium.make(env_name),
            lambda _, n: DuelingLSTM(n, VectorEncoder((8,)), 8, 8),
            run=RunConfig(**run),
            config=LearnerConfig(**config),
            r2d2=R2D2Config(),
            replay=ReplayConfig(replay_buffer_size=20_000, **changes),
            optimizer=OptimizerConfig(),
        )
