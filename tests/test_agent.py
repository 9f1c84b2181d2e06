"""Training and using an agent in three lines of Python."""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys
import threading
from unittest import mock

import gymnasium
import numpy as np
import pytest

import seed_rl
from seed_rl.agent import REPEATED
from seed_rl.agents.policy_gradient.config import OnPolicyConfig
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.gym import from_python
from seed_rl.launch import arguments as run_arguments
from seed_rl.launch import local, run_lock
from tests.helpers import run_python
from tests.helpers.waiting import wait_until

SMALL = {"actors": 1, "envs": 4, "unroll_length": 10, "seed": 1}


@pytest.fixture(scope="module")
def agent(tmp_path_factory):
    """V-trace on CartPole, trained briefly."""
    logdir = tmp_path_factory.mktemp("trained") / "run"
    return seed_rl.train("vtrace", "CartPole-v1", frames=4e3, logdir=logdir, **SMALL)


@pytest.mark.slow
def test_trained_agents_are_measured_act_and_are_saved(agent, tmp_path, capfd):
    assert agent.run.name == "run"
    measured = agent.evaluate(episodes=3, seed=1, greedy=True)
    returns = [episode["reward"] for episode in measured["episodes"]]
    assert len(returns) == 3 and measured["return"]["mean"] == pytest.approx(np.mean(returns))
    shown = capfd.readouterr().out  # In a notebook, too.
    assert "3 episodes, greedy" in shown and ".json" not in shown

    saved = seed_rl.load(agent.save(tmp_path / "saved"))
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=1)
    for _ in range(5):
        action = saved.act(observation)
        assert action == agent.act(observation) and action in env.action_space
        observation, *_ = env.step(int(action))
    assert saved.evaluate(episodes=3, seed=1, sampled=False)["episodes"] == measured["episodes"]
    with pytest.raises(UserError, match="Cannot save the agent to"):
        agent.save(tmp_path / "saved")


class Watch(seed_rl.Callback):
    """Stops, or fails, at the first report with frames; its state is the test's own."""

    def __init__(self, fails=False):
        self.fails, self.seen = fails, []

    def on_report(self, report):
        self.seen.append(report.frames)
        if report.frames and not report.last:
            assert self.run.save(self.run.logdir / "mine") is not None
            if self.fails:
                raise ZeroDivisionError("my mistake")
            self.run.stop("seen enough")

    def on_end(self, phase):
        self.seen.append(phase)


@pytest.mark.slow
def test_callbacks_run_here(tmp_path):
    """Guards stopping and saving from another process, and users' own tracebacks."""
    options = {**SMALL, "logdir": tmp_path / "run", "log_period_secs": 0.5}
    watch = Watch()
    seed_rl.train("vtrace", "CartPole-v1", frames=1e7, callbacks=[watch], **options)
    *frames, phase = watch.seen
    assert 0 < frames[-1] < 1e7 and phase == "done"
    mine = checkpoint_list.saved_frames(tmp_path / "run/mine")
    assert mine in frames and checkpoint_list.saved_frames(tmp_path / "run") == frames[-1]

    with pytest.raises(ZeroDivisionError, match="my mistake") as caught:
        failing = Watch(fails=True)
        seed_rl.train("vtrace", "CartPole-v1", frames=1e7, callbacks=[failing], **options)
    assert caught.traceback[-1].name == "on_report" and failing.seen[-1] == "failed"
    assert checkpoint_list.saved_frames(tmp_path / "run") == failing.seen[-2] > frames[-1]
    with pytest.raises(TypeError, match="not <built-in function print>"):
        seed_rl.train("vtrace", "CartPole-v1", callbacks=[print])
    with pytest.raises(TypeError, match=r"Write Watch\(\)"):
        seed_rl.train("vtrace", "CartPole-v1", callbacks=[Watch])


def test_mistakes_are_exceptions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="lerning_rate"):
        seed_rl.train("vtrace", "CartPole-v1", lerning_rate=1e-3)
    with pytest.raises(UserError, match="no option frmes=. Did you mean frames="):
        seed_rl.train("vtrace", "CartPole-v1", frmes=100)
    with pytest.raises(UserError, match="Did you mean: .*frame_stack"):
        seed_rl.train("vtrace", "CartPole-v1", framestack=4)
    with pytest.raises(UserError, match="frames= and total_environment_frames= are the same"):
        seed_rl.train("vtrace", "CartPole-v1", frames=100, total_environment_frames=200)
    with pytest.raises(UserError, match="write actors= envs=, .*seed-rl train ppo CartPole-v1"):
        seed_rl.train("ppo", "CartPole-v1", n_envs=8)


def test_arguments_count_more_than_a_flag_file(tmp_path, monkeypatch):
    """Guards the length of a run; the last flag counts."""
    (tmp_path / "some.flags").write_text("--total_environment_frames=9\n")
    started = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(seed_rl.agent, "_run", started)
    with pytest.raises(KeyboardInterrupt):
        options = {"frames": 100, "flagfile": tmp_path / "some.flags"}
        seed_rl.train("vtrace", "CartPole-v1", logdir=tmp_path / "run", **options)
    (_, line, _), _ = started.call_args
    options = run_arguments.parse(line)
    assert local.ask_program(options, quiet=True).frames == 100


@pytest.mark.slow
def test_mistakes_that_only_actors_notice_are_exceptions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="^actor [01]: .*NoSuchEnv"):
        seed_rl.train("vtrace", "NoSuchEnv-v1")


@pytest.mark.slow
def test_lists_and_dictionaries_are_one_value(tmp_path, monkeypatch):
    """Guards against the last element of a list winning silently."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="--mlp_sizes=64,x"):
        seed_rl.train("vtrace", "CartPole-v1", mlp_sizes=[64, "x"])
    with pytest.raises(UserError, match="no_such_argument"):
        seed_rl.train("vtrace", "CartPole-v1", env_kwargs={"no_such_argument": None})
    options = dataclasses.fields(OnPolicyConfig)
    assert {option.name for option in options if option.metadata["repeated"]} < REPEATED


def test_values_of_numpy_are_values_of_python(tmp_path, monkeypatch):
    """Guards results of computations as options; and names what to do with other objects."""
    started = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(seed_rl.agent, "_run", started)
    options = {"mlp_sizes": np.array([32, 16]), "learning_rate": np.float32(0.5)}
    kwargs = {"a": np.int64(9), "b": {"c": np.ones(2)}}
    with pytest.raises(KeyboardInterrupt):
        seed_rl.train("vtrace", "CartPole-v1", env_kwargs=kwargs, logdir=tmp_path, **options)
    (_, line, _), _ = started.call_args
    wanted = [
        "--mlp_sizes=32,16",
        "--learning_rate=0.5",
        '--env_kwargs={"a": 9, "b": {"c": [1.0, 1.0]}}',
    ]
    assert set(wanted) < set(line)
    with pytest.raises(UserError, match=r"<class 'int'>.* Give .* lambda: Maze"):
        seed_rl.train("vtrace", "CartPole-v1", env_kwargs={"kind": int})


def countdown(length):
    """A class that no other process can import, whose episodes have `length` steps and return."""

    class Countdown(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, seed=None, options=None):
            super().reset(seed=seed)
            self._left = length
            return np.ones(1, np.float32), {}

        def step(self, action):
            self._left -= 1
            return np.full(1, self._left / length, np.float32), 1.0, self._left == 0, False, {}

    return Countdown


@pytest.mark.slow
def test_environments_that_only_this_process_has(tmp_path):
    """Guards lambdas and classes of notebooks, also of an agent that was copied."""
    environment = countdown(4)
    agent = seed_rl.train("vtrace", environment, frames=640, actors=1, logdir=tmp_path / "run")
    agent.save(tmp_path / "copy")
    copy = seed_rl.load(tmp_path / "copy", env=environment)
    assert copy.evaluate(episodes=2)["return"]["mean"] == 4.0
    with pytest.raises(UserError, match=r"seed_rl.load\(RUN, env="):
        seed_rl.load(tmp_path / "copy").evaluate(episodes=2)


@pytest.mark.slow
def test_modules_beside_a_program_elsewhere(tmp_path):
    """Guards modules, of environments and gin configs, beside a program in another folder."""
    (tmp_path / "own_module.py").write_text(
        "import gymnasium\ndef make(): return gymnasium.make('CartPole-v1')\n"
    )
    (tmp_path / "program.py").write_text(
        "import seed_rl, own_module\n"
        "options = dict(frames=200, actors=1, envs=1, gin_bindings=['import own_module'])\n"
        "seed_rl.train('ppo', lambda: own_module.make(), logdir='run', **options)\n"
        "print(seed_rl.load('run', True, own_module.make).evaluate(episodes=2)['return']['mean'])\n"
    )
    (tmp_path / "elsewhere").mkdir()
    result = run_python("../program.py", code=0, cwd=tmp_path / "elsewhere")
    assert float(result.stdout.splitlines()[-1]) > 0


def test_importable_environments_are_found_beside_the_program(tmp_path, monkeypatch):
    """Guards classes in modules: all processes look where the program does.

    In the working directory, where a logdir may have been unpacked, only with trust.
    """
    started = mock.Mock(side_effect=KeyboardInterrupt)
    monkeypatch.setattr(seed_rl.agent, "_run", started)
    monkeypatch.setattr(sys, "path", ["/where/the/program/is", *sys.path])
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    for call, trust in (
        (lambda: seed_rl.train("vtrace", gymnasium.make, logdir=run), True),
        (lambda: seed_rl.load(run, trust=True).evaluate(jit="true", sampled=False), True),
        (lambda: seed_rl.load(run).evaluate(sampled=True), False),
    ):
        with pytest.raises(KeyboardInterrupt):
            call()
        _, arguments, variables = started.call_args.args
        folders = variables["PYTHONPATH"].split(os.pathsep)
        assert folders[0] == "/where/the/program/is" and (os.getcwd() in folders) == trust
        (run / "saved_model").mkdir(parents=True, exist_ok=True)
    assert "--sampled" in arguments and "--trust" not in arguments


def test_an_environment_that_was_created_already(tmp_path, monkeypatch):
    """One actor gets it: a copy, with all that was done to it."""
    environment, runs = countdown(4)(), []
    environment.place = "here"

    def run(module, arguments, variables):
        with monkeypatch.context() as process:
            for name, value in variables.items():
                process.setenv(name, value)
            runs.append((arguments, from_python.factory()()))

    monkeypatch.setattr("seed_rl.agent._run", run)
    seed_rl.train("vtrace", environment, logdir=tmp_path / "run")
    [(arguments, created)] = runs
    assert arguments[:4] == ["gym", "vtrace", "1", "1"]  # One actor with one environment.
    assert f"--env_name={from_python.NAME}" in arguments
    assert type(created) is type(environment) and created.place == "here"


def test_environments_that_cannot_be(tmp_path):
    """Guards the messages; each names what to give instead."""
    for environment, message in (
        (42, "42 is not an environment: give its name"),
        (countdown(4)(), r"is one environment. For several, .* lambda: Countdown\(\)"),
        (functools.partial(countdown(4), threading.Lock()), "cannot be sent to other processes"),
    ):
        with pytest.raises(UserError, match=message):
            seed_rl.train("vtrace", environment, envs=4, logdir=tmp_path / "run")


def test_there_must_be_an_agent_to_load(tmp_path):
    with pytest.raises(UserError, match="There is no trained agent in"):
        seed_rl.load(tmp_path)


def test_a_copy_is_complete_or_not_there(tmp_path, monkeypatch):
    """Guards a full disk, and a checkpoint that its run deletes meanwhile."""
    monkeypatch.setenv("HOME", str(tmp_path))
    checkpoint = tmp_path / "run/checkpoints" / checkpoint_list.name(1, 10)
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").symlink_to("nowhere")
    agent = seed_rl.load("~/run")
    with pytest.raises(UserError, match="Cannot save the agent to .*/saved: .*No such file"):
        agent.save("~/saved")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    (checkpoint / "weights").unlink()
    assert seed_rl.load(agent.save("~/saved")).run == tmp_path / "saved"
    with pytest.raises(UserError, match="File exists"):
        agent.save("~/saved")


@pytest.mark.slow
def test_a_killed_caller_leaves_no_run(tmp_path):
    """Guards the next call in a notebook whose kernel was killed: the run is saved, and free."""
    call = f"import seed_rl; seed_rl.train('vtrace', 'CartPole-v1', logdir='{tmp_path}/run')"
    with subprocess.Popen([sys.executable, "-c", call], stdout=subprocess.PIPE) as caller:
        learner = tmp_path / "run/learner.pid"
        wait_until(lambda: (report := progress.read(tmp_path / "run")) and report.train_steps > 0)
        caller.kill()
        wait_until(lambda: run_lock.running_pid(tmp_path / "run") is None)
    assert not pathlib.Path(f"/proc/{learner.read_text().strip()}").exists()
    assert checkpoint_list.saved_frames(tmp_path / "run")
