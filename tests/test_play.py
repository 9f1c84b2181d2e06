"""Playing with trained agents, as users do it."""

import argparse
import io
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from unittest import mock

import gymnasium
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from seed_rl import play
from seed_rl.common.acting import video
from seed_rl.common.acting.batched_env import BatchedEnvironment, env_seeds
from seed_rl.common.errors import UserError
from seed_rl.common.inference.acting_policy import ActingPolicy
from seed_rl.common.learner import playing
from seed_rl.common.system.chatter import is_chatter
from seed_rl.common.types import EnvOutput, Specs
from tests.helpers import run_python
from tests.helpers.system_helpers import site
from tests.helpers.waiting import wait_until

imageio = pytest.importorskip("imageio.v2")
Image = pytest.importorskip("PIL.Image")
ImageSequence = pytest.importorskip("PIL.ImageSequence")


def run_play(*arguments):
    played = run_python("-m", "seed_rl.play", *map(str, arguments), code=0)
    output = played.stdout + played.stderr
    assert [line for line in output.splitlines() if is_chatter(line)] == []
    return output


def table_rows(output):
    """[(return, steps)] of the episodes."""
    rows = re.findall(r"│\s+\d+ │\s+(\S+) │\s+(\S+) │", output)
    return [(float(reward), int(steps)) for reward, steps in rows]


def test_the_summary_of_returns():
    """Guards the interval of the mean, which is for a sample, and each quantile by its name."""
    returns = [1.0, 2.0, 3.0, 4.0, 10.0]
    error = np.std(returns, ddof=1) / np.sqrt(5)  # As scipy.stats.sem.
    assert play.summary(returns) == {
        "mean": 4.0,
        "low": pytest.approx(4.0 - 1.96 * error),
        "high": pytest.approx(4.0 + 1.96 * error),
        "std": pytest.approx(np.sqrt(10)),
        "median": 3.0,
        "min": 1.0,
        "max": 10.0,
    }
    one = play.summary([7.0])
    assert (one.pop("std"), one.pop("low"), one.pop("high")) == (0.0, None, None)
    assert set(one.values()) == {7.0}


@pytest.mark.slow
def test_cartpole_from_training_to_video(train_to_end, tmp_path, socket_address):
    """Guards the options beside a run, weights from a checkpoint and from the exported model.

    And the process that films, which TensorFlow would crash on machines without a GPU.
    """
    logdir = train_to_end(
        *("seed_rl.gym.vtrace_main", 400),
        '--env_kwargs={"sutton_barto_reward": true}',
        "--env_wrappers=tests.helpers.odd_envs:FilmedWithoutTensorFlow",
        "--mlp_sizes=7,5",  # Not the default, to see that it is kept.
        "--batch_size=2",
    )

    film = tmp_path / "films" / "cartpole.mp4"
    trusted = (logdir, "--trust")  # The wrapper is a test's.
    output = run_play(*trusted, "--episodes=3", "--seed=5", f"--video={film}")
    rows = table_rows(output)
    assert len(rows) == 3 and "mean ± std" in output
    # Sutton and Barto's reward is -1 at the end and 0 before.
    assert rows == [(0.0 if steps == 500 else -1.0, steps) for _, steps in rows]
    frames = [frame for frame in imageio.get_reader(film)]  # noqa: C416 - its length is infinite.
    assert frames[0].shape == (400, 600, 3)
    # The first of each episode (also of the one that was not played) and one for each step.
    assert len(frames) == sum(steps for _, steps in rows) + 4
    assert not np.array_equal(frames[0], frames[5])

    # Without checkpoints there is the exported model, which must act alike; and Ctrl-C shows what
    # was played until then.
    shutil.rmtree(logdir / "checkpoints")
    with site(tmp_path, socket_address) as place:
        endless = place.start("seed_rl.play", *map(str, trusted), "--episodes=1000000", "--seed=5")
        wait_until(lambda: "\nepisode 3/" in endless.text(), running=endless)
        endless.send(signal.SIGINT)
        assert endless.wait() == 0, endless.text()
    assert table_rows(endless.text())[:3] == rows


@pytest.mark.slow
def test_atari_without_training(forks, tmp_path, socket_address):
    """Guards a run that was stopped at once, sampling, GIF, and options for the program.

    And against a flag that is misspelt and so ignored.
    """
    pytest.importorskip("ale_py")
    logdir = tmp_path / "run"
    with site(tmp_path, socket_address) as place:
        learner = place.start(
            "seed_rl.atari.vtrace_main",
            *("--run_mode=learner", f"--server_address={socket_address}"),
            *(f"--logdir={logdir}", "--game=Pong", "--nosave_model"),
        )
        socket = Path(socket_address.removeprefix("unix:"))
        wait_until(socket.exists, running=learner)  # From then on, a stop saves.
        learner.send(signal.SIGTERM)
        assert learner.wait() == 0, learner.text()

    misspelt = forks.run("-m", "seed_rl.play", logdir, "--sampld", code=2)
    assert "Unknown command line flag 'sampld'" in misspelt.stderr

    film = tmp_path / "pong.gif"
    output = run_play(
        *(logdir, "--sampled", "--episodes=3", "--max_episode_frames=80", f"--video={film}"),
        "--steps=55",  # One of them leads from each truncated episode to the next.
    )
    assert [steps for _, steps in table_rows(output)] == [20, 20]
    with Image.open(film) as images:
        assert images.size == (160, 210)
        # Equal images in a row, as before the serve, are one that is shown for longer.
        milliseconds = sum(image.info["duration"] for image in ImageSequence.Iterator(images))
    # 60 frames a second, four of them to an action; GIF counts in hundredths of a second.
    assert milliseconds / (1 + 55) == pytest.approx(1000 * 4 / 60, abs=10)


@pytest.mark.parametrize("number", ["0", "-1", "many"])
def test_numbers_of_episodes(tmp_path, number):
    result = run_python(
        "-m", "seed_rl.play", tmp_path, f"--episodes={number}", code=2, cwd=tmp_path
    )
    assert f"--episodes: must be a whole number of at least 1, not {number}" in result.stderr


def test_a_window_without_a_display(tmp_path):
    """Guards play from libraries that crash: missing ones are reported first."""
    hidden = ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    result = run_python("-m", "seed_rl.play", tmp_path, "--render", code=2, env=environment)
    assert result.stderr.startswith("error: There is no display for --render")
    assert "--video=" in result.stderr


def test_nothing_to_play(tmp_path, capsys, monkeypatch):
    """Says what is missing: the run, which may be a folder below; or its first checkpoint.

    And says so before TensorFlow is imported, which takes seconds.
    """
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / "config.json").write_text("{}")
    for path, problem in (
        (tmp_path / "missing", "There is no trained agent in"),
        (tmp_path / ("x" * 300), "Cannot read"),
        (tmp_path, f"its --logdir, such as {tmp_path / 'a-run'}."),
        (tmp_path / "a-run", "There is no trained agent in"),
    ):
        monkeypatch.setattr(sys, "argv", ["play", str(path)])
        assert play.main() == 2
        assert problem in capsys.readouterr().err


def test_a_run_without_its_program_cannot_be_played(tmp_path, capsys, monkeypatch):
    """Guards the message for models that were trained without flags, or elsewhere."""
    (tmp_path / "saved_model").mkdir()
    (tmp_path / "saved_model" / "saved_model.pb").touch()
    monkeypatch.setattr(sys, "argv", ["play", str(tmp_path), "--trust"])
    assert play.main() == 2
    assert "it has no config.json" in capsys.readouterr().err
    for record, message in (
        ({}, "not started by a program"),
        ({"program": "no_such.program", "arguments": []}, "Cannot start no_such.program"),
        ({"program": str(tmp_path / "gone.py"), "arguments": []}, "Cannot start .*gone.py"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(record))
        assert play.main() == 2
        assert re.search(message, capsys.readouterr().err)


def foreign_run(folder):
    """A saved model of a program that was never installed, and leaves a mark when it runs."""
    program = folder / "own" / "main.py"
    program.parent.mkdir()
    program.write_text(f"open({str(folder / 'mark')!r}, 'w')\n")
    (folder / "saved_model").mkdir()
    (folder / "saved_model" / "saved_model.pb").touch()
    record = {"program": str(program), "arguments": []}
    (folder / "config.json").write_text(json.dumps(record))
    return program


@pytest.mark.parametrize(
    ("flags", "envs", "episodes"),
    [
        ("", 20, 100),
        ("--episodes=3", 3, 3),
        ("--envs=4", 4, 100),
        ("--video=x.gif", 1, 10),
        ("--render --episodes=100", 1, 100),
        ("--json=x.json", 20, 100),
        ("--json=~/new/x.json", 20, 100),
    ],
)
def test_defaults_of_an_evaluation(tmp_path, monkeypatch, flags, envs, episodes):
    """Guards an earlier file, and videos from being hours long or of environments in turn."""
    foreign_run(tmp_path)
    (tmp_path / "x.json").write_text("an earlier evaluation")
    started = []
    monkeypatch.setattr(play, "start_program", lambda _, __, own, ___: started.extend(own))
    monkeypatch.setattr(play.display, "check", lambda: None)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path), "--trust", *flags.split()])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert play.main(evaluates=True) == 2, "the program did nothing"
    assert not (tmp_path / "~").exists()
    (request,) = [flag for flag in started if flag.startswith("--play_request=")]
    record = json.loads(request.partition("=")[2])
    assert f"--envs={envs}" in record["environment"] and record["episodes"] == episodes
    assert (tmp_path / "x.json").read_text() == "an earlier evaluation"


def test_a_late_failure_costs_no_episodes(tmp_path, monkeypatch, capsys):
    """Guards hours of an evaluation, whose exit code is still that of the failure."""
    foreign_run(tmp_path)

    def fail(_, __, own, ___):
        (request,) = [flag for flag in own if flag.startswith("--play_request=")]
        results = Path(json.loads(request.partition("=")[2])["results"])
        results.write_text('{"steps": 3, "reward": 7.5, "score": 7.5}\n')
        raise SystemExit(1)

    monkeypatch.setattr(play, "start_program", fail)
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path), "--trust"])
    with pytest.raises(SystemExit, match="1"):
        play.main(evaluates=True)
    assert table_rows(capsys.readouterr().out) == [(7.5, 3)]


def test_code_from_anywhere_is_not_run_unasked(tmp_path, capsys, monkeypatch):
    """Guards users who were sent a logdir: without a terminal, it takes a flag."""
    program = foreign_run(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))  # No terminal.
    monkeypatch.setattr(sys, "argv", ["play", str(tmp_path)])
    assert play.main() == 2
    message = capsys.readouterr().err
    assert str(program) in message and "--trust" in message
    assert not (tmp_path / "mark").exists()
    monkeypatch.setattr(sys, "argv", ["play", str(tmp_path), "--trust"])
    assert play.main() == 2
    assert "ended without creating an agent" in capsys.readouterr().err
    assert (tmp_path / "mark").exists()


@pytest.mark.parametrize(
    ("answer", "runs"), [("y", True), ("Yes", True), ("", False), ("n", False)]
)
def test_at_a_terminal_play_asks(tmp_path, capsys, monkeypatch, answer, runs):
    """Only a yes runs the program."""
    program = foreign_run(tmp_path)
    terminal = io.StringIO(f"{answer}\n")
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys.stderr, "isatty", terminal.isatty)
    monkeypatch.setattr(sys, "stdin", terminal)
    monkeypatch.setattr(sys, "argv", ["play", str(tmp_path)])
    assert play.main() == 2
    message = capsys.readouterr().err
    assert f"  {program}\nRun it? [y/N] " in message
    assert ("Not run." in message) != runs
    assert (tmp_path / "mark").exists() == runs


def test_an_evaluation_that_was_stopped_is_marked(tmp_path, capsys):
    """Guards means of the shortest episodes from being taken for those of all."""
    file = tmp_path / "x.json"
    episodes = [playing.Episode(10, 1.0, 1.0), playing.Episode(20, 4.0, 4.0)]
    for wanted, early in ((2, False), (3, True), (None, False)):  # None: served until stopped.
        values = {"logdir": tmp_path, "sampled": False, "seed": None, "video": None, "json": file}
        arguments = argparse.Namespace(**values, hide_json=False, envs=2, episodes=wanted)
        play.report(episodes, arguments)
        assert ("stopped early, of 3" in capsys.readouterr().out) == early
        assert json.loads(file.read_text())["stopped_early"] == early


def test_devices_are_not_replaced(tmp_path):
    """Guards /dev/stdout of a container, which root would replace by a file."""
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/stdout", "/dev/null", tmp_path / "pipe"):
        with pytest.raises(UserError, match="not a file that can be replaced"):
            play.check_writable(Path(path))


def test_ctrl_c_at_the_start_is_no_traceback(tmp_path, monkeypatch):
    foreign_run(tmp_path)
    monkeypatch.setattr(play, "load_tensorflow", mock.Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(sys, "argv", ["evaluate", str(tmp_path), "--trust"])
    assert play.main(evaluates=True) == 130


def test_table_of_returns():
    """Guards mean and standard deviation, and that a score is shown only where it differs."""

    def shown(episodes):
        console = Console(width=80)
        with console.capture() as capture:
            console.print(play.table(episodes, "greedy"))
        return capture.get()

    text = shown([playing.Episode(10, 1.0, 1.0), playing.Episode(20, 4.0, 4.0)])
    assert "2.50 ± 1.50" in text and "15.00 ± 5.00" in text and "score" not in text
    assert "7.50 ± 2.50" in shown([playing.Episode(1, 0, 5.0), playing.Episode(1, 0, 10.0)])
    assert "0 episodes" in shown([])


class Lives(gymnasium.Env):
    """Games of six steps, of two lives each: the learner's episode also ends with the third."""

    observation_space = gymnasium.spaces.Box(0, 6, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.seed = getattr(self, "seed", seed)  # Of the first.
        self._steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self._steps += 1
        over = self._steps == 6
        info = {"learning_episode_over": self._steps == 3}
        return np.full(1, self._steps, np.float32), 1.0, over, False, info


def test_whole_games_are_played(monkeypatch, capsys):
    """Guards returns, lengths and recurrent states from ends of the learner's episodes alone; and
    that who waits for a long game learns of it, and what to do.
    """
    monkeypatch.setattr(playing, "_NEWS_S", 0.0)
    seen = []

    def act(prev_actions, env_outputs, state):
        seen.append((float(env_outputs.observation[0, 0]), bool(env_outputs.done[0])))
        return prev_actions, state

    specs = Specs(tf.TensorSpec([], tf.int64), EnvOutput(*(None,) * 5))
    lives = Lives()
    env = BatchedEnvironment(lambda *_: lives, 1, 0)
    policy = ActingPolicy(act, lambda size: (), specs)
    played = list(playing.play_episodes(env, policy, 7, 2, hint=": --sampled"))
    assert played == [playing.Episode(6, 6.0, 6.0)] * 2
    assert lives.seed not in {*env_seeds(7, np.arange(100)), None}  # Not as in training.
    assert "5 steps so far in the longest episode: --sampled\n" in capsys.readouterr().err
    assert [step for step, done in seen if done] == [0.0]  # At the second game's start.


class Blind(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}


def test_an_environment_without_pictures(tmp_path):
    path = tmp_path / "x.mp4"
    writer = video.VideoWriter(path)
    with pytest.raises(UserError, match="cannot be recorded"):
        video.Film(Blind(), writer).reset()
    writer.close()
    assert not path.exists()
    assert video.Film(Blind(), None).reset()[0].shape == (2,)


@pytest.mark.parametrize("fps", [15, 30, 50, 60, 67, 125])
def test_gifs_show_fast_games_at_their_speed(fps, tmp_path):
    """GIF counts hundredths of a second, and browsers show delays of 0 or 1 as 10."""
    writer = video.VideoWriter(tmp_path / "x.gif")
    for i in range(2 * fps):
        writer.add(np.full((8, 8, 3), i, np.uint8), fps)
    writer.close()
    with Image.open(tmp_path / "x.gif") as images:
        shown = [(image.info["duration"], image.copy()) for image in ImageSequence.Iterator(images)]
    delays = [delay for delay, _ in shown]
    assert min(delays) >= 20 and sum(delays) == pytest.approx(2000, rel=0.12)
    assert shown[-1][1].convert("L").getpixel((0, 0)) == 2 * fps - 1, "the end"


def test_videos_that_cannot_be_written(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="must end with .mp4 or .gif"):
        video.VideoWriter(tmp_path / "x.avi")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Cannot write"):
        video.VideoWriter(tmp_path / "file" / "x.mp4")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match="-m pip install imageio imageio-ffmpeg"):
        video.VideoWriter(tmp_path / "x.mp4")
