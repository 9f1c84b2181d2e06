"""The command `seed-rl`: what it starts, and what it says when it cannot."""

import json

import pytest

from seed_rl import command
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import progress
from seed_rl.launch import arguments as run_arguments
from tests.helpers import run_python


@pytest.mark.parametrize(
    ("environment", "family", "flag"),
    [
        ("Pong", "atari", "--game=Pong"),
        ("space_invaders", "atari", "--game=space_invaders"),
        ("ALE/Pong-v5", "atari", "--game=ALE/Pong-v5"),
        ("HalfCheetah-v5", "mujoco", "--env_name=HalfCheetah-v5"),
        ("HalfCheetah", "mujoco", "--env_name=HalfCheetah"),
        ("gym:HalfCheetah-v5", "gym", "--env_name=HalfCheetah-v5"),
        ("CartPole-v1", "gym", "--env_name=CartPole-v1"),
        ("Blackjack-v1", "gym", "--env_name=Blackjack-v1"),  # ALE has one, of other versions.
        ("my_env:Maze", "gym", "--env_name=my_env:Maze"),
        ("mujoco:my_env:Maze", "mujoco", "--env_name=my_env:Maze"),
        ("academy_empty_goal_close", "football", "--game=academy_empty_goal_close"),
        ("11_vs_11_easy_stochastic", "football", "--game=11_vs_11_easy_stochastic"),
        ("rooms_watermaze", "dmlab", "--game=rooms_watermaze"),
        ("dmlab30", "dmlab", "--game=dmlab30"),
    ],
)
def test_environments_are_found_by_name(environment, family, flag):
    """Also guards that ./run_local.sh takes what is made of them."""
    arguments = ["train", "vtrace", environment, "--actors=2", "--envs=4", "--seed=3"]
    module, *rest = command.module_arguments(arguments)
    assert (module, rest) == (
        "seed_rl.launch.local",
        [family, "vtrace", "2", "4", flag, "--seed=3"],
    )
    options = run_arguments.parse(rest)
    assert (options.actors, options.envs_per_actor, options.flags) == (2, 4, (flag, "--seed=3"))
    # A flag file may name another environment.
    *_, file, last = command.module_arguments([*arguments, "--flagfile=F"])
    assert (file, last) == ("--flagfile=F", flag)


@pytest.mark.parametrize("environment", ["my_env:Maze", "--env=my_env:Maze"])
def test_the_environment_to_check_is_an_argument_as_for_train(environment):
    arguments = command.module_arguments(["check", environment, "--check_steps=9"])
    assert arguments == ["seed_rl.check_env", "--env=my_env:Maze", "--check_steps=9"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Which command. train, resume"),
        (["trian"], "There is no command trian.*Did you mean train"),
        (["train", "ppo"], "Expected: seed-rl train AGENT ENVIRONMENT, .* but got 'ppo'"),
        (["train", "atari", "ppo", "--game=Pong"], "such as .*ppo Pong.* but got 'atari ppo'"),
        (["train", "ppo", "Pong", "--actors", "2"], "write flags as --name=value"),
        (["train", "r2d2", "HalfCheetah-v5"], "mujoco has no agent 'r2d2'"),
        (["train", "ppo", "Breakut"], "no Atari game Breakut. Did you mean Breakout"),
        (["train", "CartPole-v1", "ppo"], "Did you mean: seed-rl train ppo CartPole-v1"),
        (["train", "ppo", "Pong", "--game=Breakout"], "Pong and --game=Breakout both name"),
        (["train", "ppo", "CartPole-v1", "--env=Maze-v0"], "both name the environment"),
        (["check"], "Expected: seed-rl check ENVIRONMENT"),
        (["resume"], "Expected: seed-rl resume RUN"),
        (["resume", "nowhere"], "There is no run in nowhere"),
        (["resume", "run", "--seeds=3"], "--seeds is not for `seed-rl resume`"),
        (["resume", "run", "--restart=fresh"], "--restart is not for `seed-rl resume`"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(UserError, match=message):
        command.module_arguments(arguments)


@pytest.mark.parametrize(
    ("entries", "trained_by"),
    [
        ({"program": "my_main"}, "another program .my_main."),
        ({"num_envs": None}, "another program .seed_rl.gym.vtrace_main."),
        ({"learner_addresses": "localhost:1,localhost:2"}, "several learners"),
    ],
)
def test_what_only_its_own_command_can_resume(tmp_path, entries, trained_by):
    """Guards runs of several learners, whose record has the environments of one."""
    record = {"program": "seed_rl.gym.vtrace_main", "num_envs": 4, "env_batch_size": 2} | entries
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=f"was trained by {trained_by}, .* the same command again"):
        command.module_arguments(["resume", str(tmp_path)])


def test_a_run_of_python_is_resumed_from_python(tmp_path):
    """Guards runs of `experiment.run`, whose record names no program."""
    (tmp_path / "config.json").write_text(json.dumps({"num_envs": 4, "env_batch_size": 2}))
    with pytest.raises(UserError, match="not started by a command, but from Python"):
        command.module_arguments(["resume", str(tmp_path)])


@pytest.mark.parametrize(
    ("flags", "actors"), [([], 3), (["--remote_actors=2"], 1), (["--remote_actors=3"], 0)]
)
def test_actors_elsewhere_take_part_in_a_resumed_run(tmp_path, flags, actors):
    """Guards environments that the run did not have; a run keeps its number of them. And a run that
    saved nothing, of whose options the default game would be trained.
    """
    record = {"program": "seed_rl.gym.vtrace_main", "num_envs": 6, "env_batch_size": 2}
    (tmp_path / "config.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="no checkpoint to continue. Repeat the command"):
        command.module_arguments(["resume", str(tmp_path), *flags])
    (tmp_path / "checkpoints/ckpt-00001-step-000000000030").mkdir(parents=True)
    _, *rest = command.module_arguments(["resume", str(tmp_path), *flags])
    assert rest == ["gym", "vtrace", str(actors), "2", f"--logdir={tmp_path}", *flags]
    with pytest.raises(UserError, match="--remote_actors=4: the run has only 3 actors"):
        command.module_arguments(["resume", str(tmp_path), "--remote_actors=4"])


def test_help_names_each_command():
    result = run_python("-m", "seed_rl.command", "--help", code=0)
    assert len(result.stdout.splitlines()) <= 32  # A screen.
    for name in command.PROGRAMS:
        assert f"\n  {name} " in result.stdout


@pytest.mark.parametrize(
    ("line", "code", "messages"),
    [
        ("train --help", 0, ["usage: seed-rl train AGENT", "--envs=N", "--restart=fresh"]),
        (
            "train sac CartPole-v1 --help",
            0,
            ["usage: seed-rl train AGENT", "--restart=fresh", "--n_quantiles", "--env_name"],
        ),
        ("train pp CartPole-v1 --help", 2, ["gym has no agent 'pp'"]),
        (
            "train ppo CartPole-v1 --gama=1",
            2,
            ["'gama' (seed-rl train ppo CartPole-v1 --help lists", "usage: seed-rl train AGENT"],
        ),
        ("train ppo CartPole-v1 --num_envs=3", 2, ["it is --actors x --envs."]),
    ],
)
def test_help_and_errors_speak_of_the_command_that_was_typed(line, code, messages):
    """And not of ./run_local.sh, which runs it."""
    result = run_python("-m", "seed_rl.command", *line.split(), code=code)
    said = result.stdout + result.stderr
    assert all(message in said for message in messages), said
    assert "usage: ./run_local.sh" not in said and "python -m seed_rl.gym" not in said


@pytest.mark.slow
def test_train_stop_at_the_end_resume(tmp_path):
    """A run of the command, and its continuation with recorded options and one more flag."""

    def seed_rl(*arguments):
        run_python("-m", "seed_rl.command", *arguments, code=0, cwd=tmp_path)

    small = ["--total_environment_frames=2000", "--unroll_length=10", "--tensorboard=false"]
    seed_rl("train", "vtrace", "CartPole-v1", "--actors=1", "--envs=4", *small)
    run = "runs/gym-vtrace-CartPole-v1"
    frames = progress.read(tmp_path / run).frames
    assert frames >= 2000
    seed_rl("resume", run, "--total_environment_frames=4000", "--tensorboard=false")
    assert progress.read(tmp_path / run).frames >= 4000
    log = (tmp_path / run / "logs" / "learner.log").read_text()
    assert f"Resuming after {frames} environment frames" in log
    record = json.loads((tmp_path / run / "config.json").read_text())
    assert (record["num_envs"], record["unroll_length"]) == (4, 10)
    seed_rl("evaluate", run, "--episodes=1", "--video=episode.gif")
    assert (tmp_path / "episode.gif").stat().st_size > 0
