"""What a new run is told about the one that is saved in its directory."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys

import pytest

from seed_rl.common.config import options
from seed_rl.common.config.options import option
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import run_record, saved_run
from seed_rl.common.system import running_program
from tests.helpers import PROGRAMS, run_python


def save(logdir, **options):
    """A checkpoint as far as the options of its run go."""
    checkpoint = logdir / "checkpoints" / "ckpt-000001-step-000000000800"
    checkpoint.mkdir(parents=True)
    run_record.write(checkpoint, {"program": running_program.name(), **options})
    return checkpoint


def test_another_environment_is_refused_with_both_values_and_the_ways_out(tmp_path):
    save(tmp_path, game="Pong", levels=(1, 2), kwargs=None)
    now = {"game": "Breakout", "levels": (3,), "kwargs": "{}"}
    message = saved_run.refusal(tmp_path, now)
    assert "--game was Pong, is now Breakout" in message
    assert "--levels was 1,2, is now 3" in message
    assert "--kwargs was not given, is now {}" in message
    for way_out in ("choose another --logdir", "--restart=fresh", f"--init_checkpoint={tmp_path}"):
        assert way_out in message


def test_the_same_environment_continues(tmp_path):
    """Guards types that JSON changes, options that came later, and options that are no one's
    environment: the learning rate may change.
    """
    save(tmp_path, game="Pong", levels=(1, 2), learning_rate=0.1)
    assert saved_run.refusal(tmp_path, {"game": "Pong", "levels": (1, 2), "new": 3}) is None


def test_a_directory_that_cannot_be_read_is_no_traceback(tmp_path):
    """Guards against a run that begins anew beside checkpoints that nobody can see just now."""
    (tmp_path / "checkpoints").symlink_to("checkpoints")
    with pytest.raises(UserError, match="Cannot read .*checkpoints: "):
        saved_run.refusal(tmp_path, {})


@pytest.mark.parametrize("text", ["[1, 2]", "7", "[" * 99_999, "{"])
def test_options_that_cannot_be_read_refuse_nothing(tmp_path, text):
    """Restoring finds out what has happened to the checkpoint."""
    (save(tmp_path) / "config.json").write_text(text)
    assert saved_run.refusal(tmp_path, {"game": "Pong"}) is None


@pytest.mark.parametrize("arguments", [7, None, "--a=b"])
def test_a_damaged_record_starts_nothing(arguments):
    with pytest.raises(UserError, match="arguments are not a list"):
        run_record.start_again({"program": "somebody.main", "arguments": arguments}, [])


@pytest.mark.parametrize("argument", ["--", "-", "b", "", 7])
def test_arguments_that_are_no_flags_start_nothing(argument):
    """Guards against a program that ignores the overrides after them, and trains."""
    with pytest.raises(UserError, match="arguments are not all flags"):
        run_record.start_again({"program": "timeit", "arguments": ["--a=b", argument]}, [])


@pytest.mark.parametrize("flag", ["flagfile", "undefok", "profile_file", "norun_with_pdb"])
def test_flags_of_absl_start_nothing(flag):
    """Guards files: absl would write the profile to the one that a stranger's record names."""
    with pytest.raises(UserError, match=f"no run records --.*{flag.removeprefix('no')}"):
        run_record.start_again({"program": "timeit", "arguments": ["--a=b", f"--{flag}=x"]}, [])


def test_flags_of_every_kind_are_recorded_as_arguments():
    """Guards lines in the values of repeated flags, and flags without a serializer."""
    given = ["--lines=a\nb", "--lines=c", "--nono", "--numbers=1", "--numbers=2", "--yes"]
    result = run_python(PROGRAMS / "recorded_arguments.py", *given, "--raw=x")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == given


def test_what_was_never_saved_is_not_continued(tmp_path):
    """Guards a run that was stopped for a wrong name before it had a checkpoint."""
    run_record.write(tmp_path, {"game": "Pong"})
    assert saved_run.refusal(tmp_path, {"game": "Breakout"}) is None
    assert saved_run.refusal(tmp_path / "missing", {"game": "Breakout"}) is None


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ("seed_rl.atari.vtrace_main", "seed_rl.atari.r2d2_main", False),
        ("/old/place/my_main.py", "/new/place/my_main.py", True),
        ("/place/my_main.py", "project.my_main", True),
        ("/place/my_pong.py", "/place/my_breakout.py", False),
        (None, "/place/my_main.py", True),
    ],
)
def test_another_program_is_another_run_wherever_a_script_lies(before, now, same):
    changes = saved_run.differences({"program": before}, {"program": now})
    assert (changes == []) == same
    assert same or changes == [f"the program was {before}, is now {now}"]


def test_the_identity_of_an_environment():
    """Guards options that only show an environment, and existing programs' objects."""

    @dataclasses.dataclass(frozen=True)
    class Maze:
        """Maze"""

        size: int = option(9, "")
        render_mode: str | None = option(None, "", neutral=True)

    assert options.environment_identity(Maze()) == {"size": 9}
    assert options.environment_identity(None) == {}

    class Flags:
        game = "Pong"
        learning_rate = 1

    assert options.environment_identity(Flags()) == {"game": "Pong"}


def ask(directory, module, *flags):
    """What a program answers to --only_check_args in `directory`."""
    return run_python(
        "-m", module, "--run_mode=learner", *flags, "--only_check_args", cwd=directory
    )


@pytest.mark.parametrize(
    ("module", "flags", "name"),
    [
        ("seed_rl.atari.vtrace_main", [], "runs/atari-vtrace-Pong"),
        ("seed_rl.atari.vtrace_main", ["--flagfile=my.flags"], "runs/atari-vtrace-Breakout"),
        ("seed_rl.gym.r2d2_main", ["--env_name=a/b:C-v0"], "runs/gym-r2d2-a_b_C-v0"),
        ("seed_rl.gym.vtrace_main", ["--job-dir=there"], "there"),
        ("my_main", ["--size=2"], "runs/my_main"),
        ("my_maze", ["--size=2"], "runs/my_maze-2"),
        ("my_place", ["--size=2"], "here"),
    ],
)
def test_the_default_directory_is_named_after_program_and_environment(
    tmp_path, module, flags, name
):
    """Guards two games from sharing a directory; below the working directory, so that nobody else
    can have prepared it.
    """
    (tmp_path / "my.flags").write_text("--game=Breakout\n")
    shutil.copytree(PROGRAMS / "own_mains", tmp_path, dirs_exist_ok=True)
    answer = ask(tmp_path, module, *flags)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["logdir"] == name


def test_a_program_says_that_it_would_not_continue(tmp_path):
    """Guards what the launcher asks before it touches a directory."""
    record = {"program": "seed_rl.atari.vtrace_main", "game": "Pong", "sticky_actions": False}
    run_record.write(save(tmp_path), record)
    flags = [f"--logdir={tmp_path}", "--learning_rate=0.5", "--novectorized"]
    refusals = [
        json.loads(ask(tmp_path, f"seed_rl.atari.{main}_main", *flags, *more).stdout)["refusal"]
        for main, more in (
            ("vtrace", ["--game=Pong"]),
            ("vtrace", ["--game=Breakout"]),
            ("vtrace", ["--sticky_actions"]),
            ("r2d2", ["--game=Pong"]),
        )
    ]
    assert refusals[0] is None
    assert "--game was Pong, is now Breakout" in refusals[1]
    assert "--sticky_actions was False, is now True" in refusals[2]
    assert "the program was seed_rl.atari.vtrace_main, is now seed_rl.atari.r2d2" in refusals[3]


def test_a_record_says_where_options_come_from(tmp_path):
    """Guards config.json, the log, and that a replayed run's arguments are not its own. A value
    that the program passes instead of the flag's counts, even if it is the library's default."""
    shutil.copy(PROGRAMS / "recording_learner.py", tmp_path)
    (tmp_path / "my.flags").write_text("--num_envs=8\n")
    arguments = ["--flagfile=my.flags", "--seed=3", "--run_mode=learner", "--task=0"]
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    first = start_in(tmp_path, "recording_learner.py", "--logdir=first", *arguments)
    expected = {
        "batch_size": "small preset",
        "num_envs": "flag file my.flags",
        "seed": "command line",
        "unroll_length": "program",
    }
    record = run_record.read(tmp_path / "first")
    own = dict.fromkeys(("logdir", "run_mode"), "command line")
    assert record["origins"] == {**expected, **own}
    table = [line.split() for line in first.stderr.splitlines() if line.startswith("  --")]
    assert [row[:2] for row in table] == [
        ["--batch_size", "2"],
        ["--num_envs", "8"],
        ["--seed", "3"],
        ["--unroll_length", "7"],
    ]
    assert table[1][2:] == ["flag", "file", "my.flags"]

    again = "from seed_rl.common.run_files.run_record import read, start_again; "
    again += "start_again(read('first'), ['--logdir=second', '--seed=4'])"
    start_in(tmp_path, "-c", again)
    record = run_record.read(tmp_path / "second")
    assert (record["seed"], record["num_envs"]) == (4, 8)
    assert record["origins"] == {**expected, **own}


def start_in(directory, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    result = run_python(*arguments, cwd=directory, env=environment)
    assert result.returncode == 0, result.stderr
    return result
