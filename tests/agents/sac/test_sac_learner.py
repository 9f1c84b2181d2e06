"""The path of SAC's experience: into the replay, relabelled, trained on, saved; and its errors."""

import dataclasses
import time

import gymnasium
import numpy as np
import pytest

from seed_rl.agents.sac import networks
from seed_rl.agents.sac.algorithm import SAC, create_job
from seed_rl.agents.sac.config import SACConfig, SACNetworkConfig, updates_per_step
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.replay_config import HindsightConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.distributions.spaces import get_parametric_distribution_for_action_space
from seed_rl.common.errors import UserError
from seed_rl.common.replay import Hindsight, ReplayConfig
from seed_rl.common.run_files import returns_log
from seed_rl.gym.env import wrap_for_agent
from seed_rl.mujoco.toy_env import BitFlippingEnv
from seed_rl.testing.envs import TimeLimitEnv
from tests.helpers.contexts import context
from tests.helpers.in_process import Run, values
from tests.helpers.waiting import wait_until

UNIFORM = ReplayConfig(
    replay_buffer_size=2000,
    replay_buffer_min_size=16,
    replay_ratio=8.0,
    priority_exponent=0.0,
    replay_compression_level=0,
)
SMALL = SACNetworkConfig(mlp_sizes=(8,))
WINDOW = 8


class SACRun(Run):
    """SAC in one process; `hindsight` relabels windows of `unroll_length` to parts of one step."""

    def __init__(self, make_env, config=None, hindsight=False, network=SMALL, **options):
        self._hindsight = hindsight
        options = {"replay": UNIFORM, "unroll_length": 1, **options}
        super().__init__(make_env, config or SACConfig(), network=network, **options)

    def create_algorithm(self, agent, replay, network, **options):
        observations, actions = self.env.observation_space, self.env.action_space
        distribution = get_parametric_distribution_for_action_space(actions)
        reward = BitFlippingEnv().compute_reward
        return SAC(
            agent,
            replay,
            context(
                lambda: networks.create_network(observations, distribution, network),
                distribution,
                observations,
                actions,
                **options,
            ),
            (lambda: Hindsight(reward, 1, 1.0, seed=0)) if self._hindsight else None,
        )


def pendulum():
    return gymnasium.make("Pendulum-v1")


def test_target_network_moves_by_its_fraction():
    """Guards smoothing: a copy at the start, then tau of the way at every second step."""
    config = SACConfig(target_update_tau=0.25, update_target_every_n_step=2)
    with SACRun(pendulum, config) as run:
        run.start()
        run.act()
        target = values(run.algorithm.target_network)
        for a, b in zip(values(run.algorithm.network), target, strict=True):
            np.testing.assert_array_equal(a, b)
        for step in range(1, 5):
            run.train()
            network, moved = values(run.algorithm.network), values(run.algorithm.target_network)
            for new, old, now in zip(network, target, moved, strict=True):
                expected = old + 0.25 * (new - old) if step % 2 == 0 else old
                np.testing.assert_allclose(now, expected, rtol=1e-5, atol=1e-6)
            target = moved
        logs = run.algorithm.logs()
        assert logs["replay/mean_priority"] == 1.0
    assert run.actor_error is None


def test_unrolls_wait_in_the_store_until_the_replay_may_take_them():
    """Guards the freshness of samples: unrolls taken earlier would wait without newer ones."""
    replay = dataclasses.replace(UNIFORM, replay_ratio_slack=8)
    with SACRun(pendulum, replay=replay) as run:
        run.start()
        actions = run.step(None, reset=True)
        for _ in range(5):  # 16 unrolls to begin, and more of a surplus than the slack.
            actions = run.step(actions)
        wait_until(lambda: run.algorithm.unrolls_consumed == 20)
        run.step(actions)
        time.sleep(0.2)  # What would take them has the time to do so.
        assert run.store.counters().queue_size == 4 and run.algorithm.unrolls_consumed == 20
        for _ in range(3):
            run.train()
        wait_until(lambda: run.algorithm.unrolls_consumed == 24)
        assert run.algorithm.taken_at_once(256) == 16, "few may wait in front of the replay"


@pytest.mark.parametrize(("bootstrap_net", "lstm_sizes"), [("q", ()), ("v", ()), ("q", (4,))])
def test_v_is_trained_only_where_something_reads_it(bootstrap_net, lstm_sizes, recwarn):
    """Guards against Keras's warning of variables without a gradient, in both forms.

    The recurrent form with V is in the test of recurrent networks.
    """
    network = SACNetworkConfig(mlp_sizes=(8,), lstm_sizes=lstm_sizes)
    with SACRun(pendulum, SACConfig(bootstrap_net=bootstrap_net), network=network) as run:
        run.start()
        run.act()
        v = run.algorithm.network._v
        before = values(v)
        run.train()
        changed = [(a != b).any() for a, b in zip(before, values(v), strict=True)]
        assert any(changed) == (bootstrap_net == "v") and changed
    assert not [w for w in recwarn if "Gradients do not exist" in str(w.message)]


def test_checkpoint_and_resume(tmp_path):
    """Guards that a resumed run continues with target network, temperature and replay."""
    replay = {**vars(UNIFORM), "save_replay": "always"}
    with SACRun(pendulum, replay=ReplayConfig(**replay)) as run:
        run.start()
        run.act()
        for _ in range(5):
            run.train()
        saved = run.algorithm
        saved.before_save()
        run.manager(tmp_path).save(1)
        target, temperature = values(saved.target_network), float(saved.temperature())
        assert temperature != 1.0
    with SACRun(pendulum, replay=ReplayConfig(**replay), seed=1) as resumed:
        algorithm = resumed.algorithm
        assert resumed.manager(tmp_path).restore_latest() == 1
        resumed.train_steps = run.train_steps  # The learner saves them itself.
        assert float(algorithm.temperature()) == temperature
        assert len(algorithm.replay) > 0
        resumed.start()
        for a, b in zip(target, values(algorithm.target_network), strict=True):
            np.testing.assert_array_equal(a, b)
        resumed.act()
        resumed.train()


class ActionsAlone(networks.ActorCriticLSTM):
    """Returns actions, as networks of existing programs do."""

    def __call__(self, *args, **kwargs):
        output, state = super().__call__(*args, **kwargs)
        return output.action, state


@pytest.mark.slow
@pytest.mark.parametrize("quantiles", [1, 3])
def test_a_recurrent_network_trains_on_unrolls_with_truncated_episodes(
    monkeypatch, quantiles, recwarn
):
    """Guards stored states of all three parts, discrete actions, and outputs that are actions."""
    monkeypatch.setattr(networks, "ActorCriticLSTM", ActionsAlone)
    network = SACNetworkConfig(mlp_sizes=(8,), lstm_sizes=(4,), n_quantiles=quantiles)
    config = SACConfig(bootstrap_net="v" if quantiles == 1 else "q")
    options = dict(config=config, network=network, unroll_length=4, num_eval_envs=1)
    run = SACRun(lambda: TimeLimitEnv(5), **options)
    with run:
        run.start()
        run.act()
        before = values(run.algorithm.network)
        for _ in range(3):
            metrics, _ = run.train()
            assert np.isfinite(float(metrics["loss"])) and metrics["skipped_steps"] == 0
        assert all(
            (a != b).any() for a, b in zip(before, values(run.algorithm.network), strict=True)
        )
    assert run.actor_error is None
    assert not [w for w in recwarn if "Gradients do not exist" in str(w.message)]


def test_sampled_windows_are_relabelled():
    """Guards hindsight on the shared replay: parts of stored windows, with rewards to fit."""
    run = SACRun(lambda: BitFlippingEnv(4, 6), hindsight=True, unroll_length=WINDOW)
    with run:
        run.start()
        run.act()
        batches = [next(run._batches) for _ in range(20)]
        assert run.algorithm.replay.layout.specs.env_outputs.reward.shape == (WINDOW + 1,)
        run.train()
    rewards, hits = [], 0
    for batch in batches:
        env = batch.unrolls.env_outputs
        assert env.reward.shape == (2, 8)
        goal = env.observation["desired_goal"].numpy()
        achieved = env.observation["achieved_goal"].numpy()
        going_on = ~env.done[1].numpy()
        # Hits that are due to hindsight, and those that the replaced goals no longer are.
        expected = BitFlippingEnv(4).compute_reward(achieved[1], goal[0])
        np.testing.assert_array_equal(env.reward[1].numpy()[going_on], expected[going_on])
        np.testing.assert_array_equal(goal[0][going_on], goal[1][going_on])
        rewards.extend(expected[going_on])
        hits += np.sum(expected[going_on] == 0)
    assert hits > 0.2 * len(rewards)  # Without hindsight 1 of 16.


class OneReward(BitFlippingEnv):
    """One reward for all goals of a batch."""

    def compute_reward(self, achieved_goal, desired_goal, info=None):
        return float(np.mean(super().compute_reward(achieved_goal, desired_goal)))


def job(
    env,
    hindsight=None,
    config=None,
    replay=UNIFORM,
    network=SMALL,
    wrap=wrap_for_agent,
    repeats=1,
    sac=None,
):
    return create_job(
        lambda *_: wrap(env()),
        lambda actions, observations, distribution: networks.create_network(
            observations, distribution, network
        ),
        run=RunConfig(num_envs=1, num_action_repeats=repeats),
        config=config or LearnerConfig(unroll_length=1),
        optimizer=OptimizerConfig(),
        sac=sac or SACConfig(),
        replay=replay,
        hindsight=hindsight or HindsightConfig(),
    )


def test_windows_count_as_frames_and_options_stay_as_given():
    """Guards the count of frames and the record of the run, which differ with hindsight."""
    created = job(BitFlippingEnv, HindsightConfig(her_window_length=20))
    try:
        assert created.config.unroll_length == 20
        assert created.options["unroll_length"] == 1
    finally:
        created.algorithm.close()


def test_updates_per_step():
    config = LearnerConfig(batch_size=64, unroll_length=2)
    replay = ReplayConfig(replay_ratio=64.0)
    assert updates_per_step(config, replay, HindsightConfig()) == 0.5
    assert updates_per_step(config, replay, HindsightConfig(her_window_length=4)) == 0.25


QUANTILES = dict(env=pendulum, network=SACNetworkConfig(n_quantiles=5))
HINDSIGHT = dict(env=BitFlippingEnv, hindsight=HindsightConfig(her_window_length=5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(env=pendulum, wrap=lambda env: env), "must have bounds -1 and 1"),
        (HINDSIGHT | dict(env=pendulum), "needs an environment with goals"),
        (
            HINDSIGHT | dict(env=OneReward),
            r"reward returned an array of shape \[\] for .* 11 goals",
        ),
        (HINDSIGHT | dict(network=SACNetworkConfig(lstm_sizes=(4,))), "recurrent"),
        (HINDSIGHT | dict(config=LearnerConfig(unroll_length=6)), "shorter than --unroll_length"),
        (HINDSIGHT | dict(repeats=2), "Leave out --num_action_repeats"),
        (
            dict(env=pendulum, config=LearnerConfig(unroll_length=1, total_environment_frames=9)),
            "end before training begins",
        ),
        (dict(env=pendulum, replay=ReplayConfig()), "--priority_exponent"),
        (QUANTILES | dict(sac=SACConfig(bootstrap_net="v")), "Set --bootstrap_net=q"),
        (
            QUANTILES | dict(sac=SACConfig(dropped_quantiles_per_critic=5)),
            "leaves none of --n_quantiles=5",
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        job(**arguments)


@pytest.mark.slow
def test_the_program_trains(train_to_end):
    """Guards the flags and the processes, from environments to returns."""
    logdir = train_to_end(
        *("seed_rl.gym.sac_main", 2_000),
        "--replay_buffer_min_size=500",
        "--replay_ratio=16",
        "--batch_size=64",
        "--mlp_sizes=16",
    )
    episodes = list(returns_log.read(logdir / returns_log.FILE_NAME))
    assert {episode.episode_frames for episode in episodes} == {200}
    assert (logdir / "config.json").exists()
