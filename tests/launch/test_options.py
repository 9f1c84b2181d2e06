"""The command line of run_local.sh: what it accepts, and one clear line for what it does not."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import run_record
from seed_rl.launch import games, local, options

REPOSITORY = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def two_games(tmp_path, monkeypatch):
    """Games are found by their main programs: here, of a package with two games."""
    for main in ("atari/vtrace_main.py", "atari/r2d2_main.py", "gym/vtrace_main.py"):
        (tmp_path / main).parent.mkdir(exist_ok=True)
        (tmp_path / main).write_text("")
    monkeypatch.setattr(games, "_PACKAGE", tmp_path)


def test_defaults():
    parsed = options.parse(["atari", "r2d2", "4"])
    assert parsed.module == "seed_rl.atari.r2d2_main"
    assert (parsed.actors, parsed.envs_per_actor) == (4, 1)
    assert parsed.logdir is None
    assert parsed.server_address is None
    assert parsed.tensorboard and not parsed.fresh
    assert parsed.flags == ()


def test_everything_given():
    parsed = options.parse(
        "gym vtrace 2 8 --logdir=/x/y --restart=fresh --server_address=localhost:1234 "
        "--tensorboard=false --env_name=CartPole-v1 --nouse_lstm".split()
    )
    assert (parsed.actors, parsed.envs_per_actor) == (2, 8)
    assert parsed.logdir == pathlib.Path("/x/y")
    assert parsed.server_address == "localhost:1234"
    assert parsed.fresh and not parsed.tensorboard
    assert parsed.flags == ("--env_name=CartPole-v1", "--nouse_lstm")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "GAME AGENT ACTORS"),
        ("atari vtrace", "GAME AGENT ACTORS"),
        ("atari vtrace 1 2 3", "got 5 arguments"),
        ("pong vtrace 1", "Unknown game 'pong'; choose from: atari, gym"),
        ("gym r2d2 1", "gym has no agent 'r2d2'; choose from: vtrace"),
        ("atari vtrace four", "ACTORS must be a positive integer, not 'four'"),
        ("atari vtrace 0", "ACTORS must be"),
        ("atari vtrace 4 -1", "ENVS_PER_ACTOR must be .* not '-1'"),
        ("atari vtrace 4 0", "ENVS_PER_ACTOR must be"),
        ("atari vtrace 4 --restart=maybe", "--restart must be one of resume, fresh"),
        ("atari vtrace 4 --tensorboard=perhaps", "--tensorboard must be one of"),
        ("atari vtrace 4 --tensorboard_port=x", "--tensorboard_port must be"),
        ("atari vtrace 4 --tensorboard_port=99999", "ports range from 1 to 65535"),
        ("atari vtrace 4 --batch_size 3", "write --batch_size=3"),
        ("atari vtrace 4 4 --game Pong", "write --game=Pong"),
        ("atari vtrace 4 -batch_size=3", "two dashes; write --batch_size=3"),
        ("atari vtrace 4 --logdir", "--logdir needs a value"),
        ("atari vtrace 4 --num_envs=7", "--num_envs cannot be set here: it is ACTORS x ENVS"),
        ("atari vtrace 4 --logdir=gs://bucket/x", "needs a local directory"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(UserError, match=message):
        options.parse(arguments.split())


def test_the_program_is_asked_first(tmp_path):
    """It names the directory, and refuses what another environment has left there, unless that is
    to be moved aside.
    """
    task = ["gym", "vtrace", "1", "--env_name=MountainCar-v0"]
    named = local.ask_program(options.parse(task))
    assert named.logdir == pathlib.Path.cwd() / "runs" / "gym-vtrace-MountainCar-v0"
    checkpoint = tmp_path / "run" / "checkpoints" / "ckpt-000001-step-000000000800"
    checkpoint.mkdir(parents=True)
    run_record.write(checkpoint, {"env_name": "CartPole-v1"})
    task.append(f"--logdir={tmp_path / 'run'}")
    with pytest.raises(UserError, match="--env_name was CartPole-v1, is now MountainCar-v0"):
        local.ask_program(options.parse(task))
    fresh = local.ask_program(options.parse([*task, "--restart=fresh"]))
    assert fresh.logdir == tmp_path / "run"


@pytest.mark.parametrize(
    "code",
    [
        "print('loading ...', end='')",
        "import atexit; atexit.register(print, 'bye')",
        "import os; os.write(1, bytes([255, 254, 10]))",
    ],
)
def test_what_other_modules_print_does_not_hide_the_answer(tmp_path, monkeypatch, code):
    """Guards programs whose environment's package prints when it is imported, or at exit."""
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPOSITORY}")
    asked = local.ask_program(options.parse(["gym", "vtrace", "1", f"--logdir={tmp_path}/run"]))
    assert asked.logdir == tmp_path / "run"


def test_a_program_that_does_not_answer_is_no_traceback(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{REPOSITORY}")
    task = ["gym", "vtrace", "1", f"--logdir={tmp_path}/run"]
    (tmp_path / "sitecustomize.py").write_text("import os; os._exit(0)")
    with pytest.raises(UserError, match="ignores --only_check_args"):
        local.ask_program(options.parse(task))


def test_commands(tmp_path):
    """Learner and actors get the same flags, and agree on address and numbers of environments."""
    parsed = options.parse(
        f"atari vtrace 3 4 --logdir={tmp_path}/log --tensorboard=false --game=Pong".split()
    )
    supervisor = local.create_supervisor(parsed)
    learner = supervisor._learner_command(tmp_path)
    actor = supervisor._actor_command(2, tmp_path)
    shared = {
        f"--logdir={tmp_path}/log",
        f"--server_address=unix:{tmp_path}/server.sock",
        "--num_envs=12",
        "--env_batch_size=4",
        "--game=Pong",
    }
    assert learner[:3] == actor[:3] == [sys.executable, "-m", "seed_rl.atari.vtrace_main"]
    assert set(learner[3:]) == shared | {"--run_mode=learner"}
    assert set(actor[3:]) == shared | {"--run_mode=actor", "--task=2"}


def test_a_flag_file_does_not_change_what_the_supervisor_sets(tmp_path):
    parsed = options.parse(
        f"gym vtrace 3 4 --logdir={tmp_path} --tensorboard=false --flagfile=my.flags".split()
    )
    learner = local.create_supervisor(parsed)._learner_command(tmp_path)
    after = learner[learner.index("--flagfile=my.flags") :]
    assert {"--run_mode=learner", "--num_envs=12", "--env_batch_size=4"} < set(after)


def test_an_unknown_flag_names_the_help_that_lists_all():
    with pytest.raises(UserError, match=r"seed_rl\.gym\.vtrace_main --help lists the options"):
        local.ask_program(options.parse(["gym", "vtrace", "1", "--lr=3"]))


def test_flags_may_stand_anywhere():
    parsed = options.parse(
        "--game=Pong atari --nosave_model=true vtrace 3 --batch_size=3 2".split()
    )
    assert (parsed.actors, parsed.envs_per_actor) == (3, 2)
    assert parsed.flags == ("--game=Pong", "--nosave_model=true", "--batch_size=3")


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 2), (["nothing", "vtrace", "1"], 2), (["--help"], 0)]
)
def test_the_script(repository, arguments, code):
    """A mistake is answered at once, before anything is installed, and without a traceback."""
    result = subprocess.run(
        [repository / "run_local.sh", *arguments], capture_output=True, text=True, timeout=30
    )
    assert result.returncode == code
    assert "usage: ./run_local.sh GAME AGENT ACTORS" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("error: ") == (1 if code else 0)
    assert len(result.stderr.splitlines()) <= 2


def test_help_names_the_python_of_the_clone(repository, tmp_path):
    """Guards the command that lists all flags: it must work where the help was asked for."""
    python = pathlib.Path(".venv/bin/python")
    for folder, expected in (
        (repository, python),
        (repository.parent, repository.name / python),
        (tmp_path, repository / python),
    ):
        result = subprocess.run(
            [repository / "run_local.sh", "--help"],
            capture_output=True,
            text=True,
            timeout=30,
            cwd=folder,
        )
        assert f"  {expected} -m seed_rl.GAME.AGENT_main --help\n" in result.stdout


def test_help_of_stopping(repository):
    result = subprocess.run(
        [repository / "stop_local.sh", "--help"], capture_output=True, text=True, timeout=30
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("usage: ./stop_local.sh [LOGDIR]")


def test_only_the_standard_library(repository):
    """What runs before installing needs no package, and neither does stopping a run."""
    code = (
        "import sys; import seed_rl.launch.options, seed_rl.launch.stop, seed_rl.launch.guardian;"
        "bad = {n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names);"
        "print(sorted(n for n in bad if not n.startswith('_')))"
    )
    result = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "['seed_rl']"
