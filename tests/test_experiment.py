"""Whole experiments in one process, as notebooks run them."""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import threading
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import tensorflow as tf

from seed_rl import experiment
from seed_rl.agents.r2d2 import algorithm as r2d2_algorithm
from seed_rl.agents.r2d2 import networks as r2d2_networks
from seed_rl.agents.r2d2.config import QNetworkConfig, R2D2Config
from seed_rl.agents.vtrace.algorithm import VTrace
from seed_rl.common import nest
from seed_rl.common.acting.env_wrappers import wrap_for_agent
from seed_rl.common.callbacks import Callback
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError
from seed_rl.common.inference.acting_policy import ActingPolicy
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.system.file_lock import LearnerLock
from tests.helpers import REPOSITORY, run
from tests.helpers.events import read_arrays
from tests.helpers.vtrace_runs import OFTEN, cart_pole, make_job

pytestmark = pytest.mark.slow


@pytest.fixture
def leaves_nothing(monkeypatch):
    """Guards that a run leaves no thread, process, socket or lock behind."""

    before = set(threading.enumerate())  # Of other tests.

    def left():
        threads = [thread.name for thread in set(threading.enumerate()) - before]
        named = re.compile(
            "learner|actor-|reporter|stop-signal|on-stop|replay-|priority-|tensorboard"
        )
        folders = pathlib.Path(tempfile.gettempdir()).glob("seed_rl_*/socket")
        children = run("ps", "--ppid", str(os.getpid()), "-o", "args=").stdout
        return (
            [name for name in threads if named.match(name)],
            list(folders),
            "actor_process" in children,
        )

    # Other tests run at the same time. Not `tmp_path`, which is too long for a socket.
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        assert left() == ([], [], False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(job, result) of a recurrent V-trace, trained briefly by actors in threads."""
    job = make_job(tmp_path_factory.mktemp("trained"), 800)
    return job, experiment.run(job, callbacks=())


def test_a_job_trains_once(trained):
    """Guards cells of notebooks that run again: their "new" runs would have trained networks."""
    with pytest.raises(UserError, match="create a new job for each run"):
        experiment.run(trained[0], callbacks=())


def test_result(trained, leaves_nothing):
    """Guards what callers get: all frames, each episode, checkpoint and model."""
    _, result = trained
    assert result.finished
    assert result.frames == 800
    assert result.checkpoint.name.endswith("step-000000000800")
    assert (result.model / "saved_model.pb").exists()
    # CartPole pays 1 per step, and four environments may be within an episode.
    assert 0 < result.returns.sum() <= 800 + 4 * 500
    assert len(result.returns) == len(result.episodes)
    assert experiment.read_result(result.logdir) == result


class Biased(VTrace):
    """Always pushes the cart to one side, as a variable of its own says."""

    def __init__(self, *args):
        super().__init__(*args)
        self.action = tf.Variable(0, dtype=tf.int64)

    def checkpointables(self):
        return {"action": self.action, **super().checkpointables()}

    def before_save(self):
        self.action.assign(1)

    def evaluate(self, prev_actions, env_outputs, agent_state):
        return tf.zeros_like(prev_actions) + self.action, agent_state


def test_an_algorithm_acts_with_its_own_variables_as_saved(tmp_path):
    """Guards playing, evaluating and the exported model of one with further networks."""
    result = experiment.run(make_job(tmp_path / "run", 200, kind=Biased), callbacks=())
    job = make_job(tmp_path / "new", 1, kind=Biased)
    for policy in (
        experiment.trained_policy(job, result.checkpoint),
        experiment.load_policy(result.logdir),
    ):
        assert policy(np.zeros(4, np.float32), policy.initial_state(), 0.0)[0] == 1


@pytest.mark.parametrize("num_eval_envs", [0, 2])
def test_a_run_ends_when_it_is_good_enough(tmp_path, num_eval_envs):
    """Guards who is asked: 20 evaluation episodes, or 100 of training; and what is kept."""
    # Any agent lasts for five steps, one that always does the same for eight to ten.
    options = {"stop_at_return": 5.0, "keep_best": True, "log_period_secs": 1.0}
    job = make_job(tmp_path, 10**6, learner=options, num_eval_envs=num_eval_envs)
    result = experiment.run(job, callbacks=())
    assert result.finished and result.frames < 10**6
    rows = [row for row in result.episodes if row.evaluation == bool(num_eval_envs)]
    assert len(rows) >= (20 if num_eval_envs else 100)
    record = json.loads((tmp_path / "best/best.json").read_text())
    assert record["return"] >= 5 and record["frames"] <= result.frames
    policy = experiment.trained_policy(make_job(tmp_path / "new", 1), tmp_path / "best")
    assert policy(np.zeros(4, np.float32), policy.initial_state(), 0.0)


def test_loaded_policies_agree(trained):
    """Guards loading without code, loading a checkpoint, and the job's own weights."""
    job, result = trained
    env = cart_pole()
    observation, _ = env.reset(seed=3)
    policies = [
        experiment.load_policy(result.logdir),
        experiment.trained_policy(job),
        experiment.trained_policy(make_job(result.logdir / "new", 1), result.checkpoint),
    ]
    states = [policy.initial_state() for policy in policies]
    for _ in range(8):
        chosen = []
        for i, policy in enumerate(policies):
            action, states[i] = policy(observation, states[i], 1.0)
            chosen.append(int(action))
        assert len(set(chosen)) == 1
        memories = [
            np.concatenate([np.ravel(t) for t in nest.flatten(s.agent_state)]) for s in states
        ]
        assert np.any(memories[0])
        for memory in memories[1:]:
            np.testing.assert_allclose(memory, memories[0], rtol=1e-4, atol=1e-5)
        observation, *_ = env.step(action)


def test_batches_and_episodes(trained):
    """Guards the batch dimension, and that `done` forgets the last episode in its row only."""
    policy = experiment.load_policy(trained[1].logdir)
    observations = np.stack([cart_pole().reset(seed=i)[0] for i in range(3)])
    state = policy.initial_state(3)
    _, used = policy(observations, state, np.zeros(3))
    actions, after = policy(observations, used, np.zeros(3), done=np.array([True, False, False]))
    assert actions.shape == (3,)
    assert after.steps.tolist() == [1, 2, 2]
    # The last action, which the network reads too, is the same in both.
    forgotten = used._replace(agent_state=state.agent_state)
    _, fresh = policy(observations, forgotten, np.zeros(3), done=np.array([True, False, False]))
    memories = [np.asarray(nest.flatten(s.agent_state)[0]) for s in (after, fresh)]
    same = [np.allclose(memories[0][row], memories[1][row], atol=1e-6) for row in range(3)]
    assert same == [True, False, False]


@pytest.mark.parametrize(
    ("observation", "given"),
    [
        (np.zeros(5, np.float32), r"float32\[5\]"),
        (np.zeros([1, 4], np.float32), r"float32\[1, 4\]"),
        (np.array(["a"] * 4), r"<U1\[4\]"),
        ([1, 2, 3], r"int64\[3\]"),
    ],
)
def test_wrong_observations_are_refused(trained, observation, given):
    policy = experiment.load_policy(trained[1].logdir)
    message = rf"expects observations float32\[4\], not {given}\. .*wrap_for_agent"
    with pytest.raises(UserError, match=message):
        policy(observation, policy.initial_state(), 0.0)


def test_observations_of_another_type_with_the_same_values():
    """Guards masks of int8 and vectors of float64, as environments return them."""
    observation = {"mask": tf.TensorSpec([2], tf.uint8), "x": tf.TensorSpec([1], tf.float32)}
    specs = SimpleNamespace(
        action=tf.TensorSpec([2], tf.uint8), env_output=SimpleNamespace(observation=observation)
    )

    def act(_, env_outputs, agent_state):
        return env_outputs.observation["mask"], agent_state

    policy = ActingPolicy(act, lambda size: (), specs)

    def seen(*mask):
        given = {"mask": np.array(mask, np.int8), "x": np.zeros(1)}
        return policy(given, policy.initial_state(), 0.0)[0].tolist()

    assert seen(0, 1) == [0, 1]
    with pytest.raises(UserError, match=r"'mask': 'uint8\[2\]'.*, not .*'mask': 'int8\[2\]'"):
        seen(-1, 1)


def test_a_model_older_than_the_checkpoints_is_loaded_with_a_warning(trained, tmp_path, caplog):
    """Guards who steps the agent of a run that goes on, or was killed, after it had ended once."""
    run = shutil.copytree(trained[1].logdir, tmp_path / "run")
    experiment.load_policy(run)
    assert not caplog.records
    (run / "checkpoints" / checkpoint_list.name(9, 900)).mkdir()
    experiment.load_policy(run)
    assert "older than the newest checkpoint, of 900 frames" in caplog.text


def test_nothing_to_load(tmp_path):
    with pytest.raises(UserError, match=r"no exported model.*trained_policy"):
        experiment.load_policy(tmp_path)
    with pytest.raises(UserError, match="no run in"):
        experiment.read_result(tmp_path)


def test_continues_with_processes_from_another_thread(trained, capfd, leaves_nothing):
    """Guards the second run in one process, closures in processes, and threads as callers."""
    before = trained[1]
    name = "CartPole-v1"  # The function below closes over it.
    job = make_job(before.logdir, 1600, lambda i, c: wrap_for_agent(gymnasium.make(name)))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        result = pool.submit(experiment.run, job, actors="processes").result()
    assert result.finished
    assert result.frames == 1600
    assert len(result.episodes) > len(before.episodes)
    printed = capfd.readouterr()
    assert "1,600/1,600 frames (100.0%)" in printed.out
    assert "retrying" not in printed.err  # Nothing is wrong when a run ends.


def test_a_finished_run_says_so(trained, caplog, leaves_nothing):
    """Guards from training nothing silently, episodes after the checkpoint, and an old model."""
    with open(trained[1].logdir / "returns.csv", "a") as file:  # Acting continues at the end.
        file.write("820,1.0,25,25,25,0,0,\n")
    before = experiment.read_result(trained[1].logdir)
    # Killed after the checkpoint, while the model of an earlier end was being replaced.
    old, left = before.model / "old", before.logdir / ".saved_model.1.saving"
    old.touch()
    left.mkdir()
    result = experiment.run(make_job(before.logdir, 800), callbacks=())
    assert (before.model / "saved_model.pb").exists() and not old.exists() and not left.exists()
    assert result.finished
    assert result.frames == before.frames
    assert result.checkpoint == before.checkpoint
    assert result.episodes == before.episodes
    assert progress.read(before.logdir).train_steps > 0
    assert "already finished" in caplog.text
    assert "--total_environment_frames" in caplog.text


@pytest.mark.parametrize("actors", ["threads", "processes"])
def test_environment_that_raises(tmp_path, actors, leaves_nothing):
    """Guards that its error reaches the caller, and that the directory can be used again."""

    class Broken(gymnasium.Wrapper):  # Here, so that it is sent to processes whole.
        def step(self, action):
            raise ZeroDivisionError("the physics is wrong")

    def make(env_id, config):
        return wrap_for_agent(Broken(gymnasium.make("CartPole-v1")))

    with pytest.raises(experiment.EnvironmentFailure) as caught:
        experiment.run(make_job(tmp_path, 10**6, make), actors=actors, callbacks=())
    assert "the physics is wrong" in f"{caught.value} {caught.value.__cause__!r}"
    if actors == "processes":
        assert "ZeroDivisionError" in str(caught.value.__cause__)  # The traceback over there.
    LearnerLock(tmp_path).release()


def test_interrupt(tmp_path, leaves_nothing):
    """Guards Ctrl-C: a checkpoint, KeyboardInterrupt for the caller, and Ctrl-C as it was."""
    handler = signal.getsignal(signal.SIGINT)

    class Interrupt(Callback):
        pressed = False

        def on_report(self, report):
            if report.frames and not self.pressed:  # A second one would not wait.
                self.pressed = True
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        experiment.run(make_job(tmp_path, 10**7, learner=OFTEN), callbacks=[Interrupt()])
    assert signal.getsignal(signal.SIGINT) is handler
    result = experiment.read_result(tmp_path)
    assert not result.finished
    assert result.checkpoint is not None
    assert int(result.checkpoint.name.rpartition("-")[2]) == result.frames > 0


def test_refusals(tmp_path, leaves_nothing):
    """Guards what is refused before anything starts, and that it leaves the directory free."""
    with pytest.raises(UserError, match="'forks' is not one of 'threads', 'processes'"):
        experiment.run(make_job(tmp_path, 100), actors="forks")
    with pytest.raises(UserError, match=r"num_envs=5 .* env_batch_size=2 .* use 4 or 6"):
        experiment.run(make_job(tmp_path, 100, num_envs=5))
    lock = threading.Lock()

    def locked(env_id, config):
        with lock:
            return cart_pole()

    with pytest.raises(UserError, match=r"cannot be sent to a process.*actors='threads'"):
        experiment.run(make_job(tmp_path, 100, locked), actors="processes")
    with pytest.raises(TypeError, match="num_environments"):
        make_job(tmp_path, 100, num_environments=3)
    LearnerLock(tmp_path).release()


def r2d2_job(logdir, frames, **replay):
    network = QNetworkConfig(lstm_size=8, head_size=8, mlp_sizes=(8,), stack_size=1)
    return r2d2_algorithm.create_job(
        cart_pole,
        lambda actions, space, _: r2d2_networks.create_network(space, int(actions.n), network),
        r2d2=R2D2Config(burn_in=2),
        replay=ReplayConfig(**replay),
        env_config={},
        run=RunConfig(logdir=str(logdir), num_envs=4, env_batch_size=2),
        config=LearnerConfig(total_environment_frames=frames, batch_size=4, unroll_length=8),
    )


def test_r2d2(tmp_path, caplog, leaves_nothing):
    """Guards agents with a replay, and that their policies load in the same way."""
    # The slack keeps actors from collecting all frames before the first training step.
    replay = dict(replay_buffer_size=50, replay_buffer_min_size=8, replay_ratio_slack=4)
    job = r2d2_job(tmp_path, 600, **replay)
    caplog.set_level("INFO", "tensorflow")  # As in notebooks.
    result = experiment.run(job, callbacks=())
    assert result.finished
    # While other programs run, the server may start late: "retrying … (no server answered …)".
    assert not re.search(r"retrying for another \d+ s \((?!no server answered)", caplog.text)
    assert "Assets written" not in caplog.text
    # docs/monitoring.md documents every curve of R2D2, and none that is gone.
    tags = {tag for tag in read_arrays(tmp_path) if tag.startswith(("train/", "replay/"))}
    page = (REPOSITORY / "docs/monitoring.md").read_text()
    assert not [tag for tag in tags if f"`{tag}`" not in page]
    table = page.partition("### R2D2")[2].partition("\n##")[0]
    assert set(re.findall(r"`((?:train|replay)/[^`]+)`", table)) <= tags
    policy = experiment.load_policy(tmp_path)
    observation, _ = cart_pole().reset(seed=0)
    action, state = policy(observation, policy.initial_state(), 0.0)
    assert action in (0, 1)
    assert state.steps.tolist() == [1]


def test_a_run_without_a_training_step_says_so(tmp_path, caplog, monkeypatch, leaves_nothing):
    """Guards a short run that ends as done, and whose agent is as random as at its start."""
    job = r2d2_job(tmp_path, 600, replay_buffer_size=50, replay_buffer_min_size=8)
    monkeypatch.setattr(job.algorithm, "ready", lambda: False)
    assert experiment.run(job, callbacks=()).finished
    assert re.search("Nothing was learned: all [0-9,]+ environment frames were", caplog.text)
