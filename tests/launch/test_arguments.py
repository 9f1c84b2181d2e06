"""The command line of run_local.sh: what it accepts, and one clear line for what it does not."""

from __future__ import annotations

import dataclasses
import pathlib
import socket
import sys
from unittest import mock

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import run_record
from seed_rl.launch import arguments as run_arguments
from seed_rl.launch import games, local
from tests.helpers import REPOSITORY, run, run_python, stand_in


@pytest.fixture(autouse=True)
def two_games(tmp_path, monkeypatch):
    """Games are found by their main programs: here, of a package with two games."""
    for main in ("atari/vtrace_main.py", "atari/r2d2_main.py", "gym/vtrace_main.py"):
        (tmp_path / main).parent.mkdir(exist_ok=True)
        (tmp_path / main).write_text("")
    monkeypatch.setattr(games, "_PACKAGE", tmp_path)


@pytest.mark.parametrize("waiting", ["ask_program", "create_supervisor"])
def test_ctrl_c_before_the_start_is_no_traceback(tmp_path, monkeypatch, waiting):
    """While the program checks its flags, and while another run holds the directory."""
    monkeypatch.setattr(local, "ask_program", lambda options: options)
    monkeypatch.setattr(local, waiting, mock.Mock(side_effect=KeyboardInterrupt))
    assert local.main(["gym", "vtrace", "1", f"--logdir={tmp_path}"]) == 130


def test_stopped_exit_code_is_refused(capsys):
    """Guards clean stops, which the supervisor would report as failures of the learner."""
    assert local.main(["gym", "vtrace", "1", "--stopped_exit_code=75"]) == 2
    assert "--stopped_exit_code cannot be set here" in capsys.readouterr().err


def test_defaults():
    parsed = run_arguments.parse(["atari", "r2d2", "4"])
    assert parsed.module == "seed_rl.atari.r2d2_main"
    assert (parsed.actors, parsed.envs_per_actor) == (4, 1)
    assert parsed.logdir is None
    assert parsed.server_address is None
    assert parsed.tensorboard and not parsed.fresh
    assert parsed.flags == ()


def test_everything_given():
    parsed = run_arguments.parse(
        "gym vtrace 2 8 --logdir=/x/y --restart=fresh --server_address=localhost:1234 "
        "--tensorboard=false --env_name=CartPole-v1 --nouse_lstm".split()
    )
    assert (parsed.actors, parsed.envs_per_actor) == (2, 8)
    assert parsed.logdir == pathlib.Path("/x/y")
    assert parsed.server_address == "localhost:1234"
    assert parsed.fresh and not parsed.tensorboard
    assert parsed.flags == ("--env_name=CartPole-v1", "--nouse_lstm")


def test_actors_on_other_machines_count():
    parsed = run_arguments.parse("atari vtrace 2 4 --expose --remote_actors=3 --game=Pong".split())
    assert (parsed.expose, parsed.num_envs) == (":8686", 20)
    assert parsed.secrets == pathlib.Path("secrets") and parsed.flags == ("--game=Pong",)
    assert run_arguments.parse("atari vtrace 2 --expose=10.0.0.5:1".split()).expose == "10.0.0.5:1"


def test_a_proxy_that_cannot_start_is_told_before_anything_runs(tmp_path, monkeypatch):
    """Guards the commands that the messages name."""
    flags = f"--expose --logdir={tmp_path} --secrets={tmp_path}/secrets"
    parsed = run_arguments.parse(["atari", "vtrace", "1", *flags.split()])
    with pytest.raises(UserError, match=r"secrets/proxy.pem, .*scripts/make_secrets.sh .*secrets"):
        local.create_supervisor(parsed)
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(UserError, match="missing: sudo apt-get install haproxy"):
        local.create_supervisor(parsed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "GAME AGENT ACTORS"),
        ("atari vtrace", "GAME AGENT ACTORS"),
        ("atari vtrace 1 2 3", "got 5 arguments"),
        ("pong vtrace 1", "Unknown game 'pong'; choose from: atari, gym"),
        ("atarii vtrace 1", r"'atarii'; choose from: atari, gym\. Did you mean atari\?"),
        ("gym r2d2 1", "gym has no agent 'r2d2'; choose from: vtrace"),
        ("atari vtracee 1", r"'vtracee'; choose from: r2d2, vtrace\. Did you mean vtrace\?"),
        ("atari vtrace four", "ACTORS must be a positive integer, not 'four'"),
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
        ("atari vtrace 4 --expose=learner", "--expose must be a positive integer, not 'learner'"),
        ("atari vtrace 4 --remote_actors=2", "--remote_actors need an address .* --expose"),
        ("atari vtrace 4 --secrets=s", "--secrets is only for runs .* --expose"),
        ("atari vtrace 0", "ACTORS must be a positive integer"),
        ("atari vtrace 4 --expose --server_address=a:1", "cannot be combined with --expose"),
        ("atari vtrace 3 --learners=2", "ACTORS=3 cannot be divided among 2 learners"),
        ("atari vtrace 4 --learners=2 --expose", "--expose cannot be combined with --learners=2"),
        ("atari vtrace 4 --learners=2 --seeds=3", "--learners cannot be combined with --seeds"),
        ("atari vtrace 4 --num_envs=7", "--num_envs cannot be set here: it is ACTORS x ENVS"),
        ("atari vtrace 4 --logdir=gs://bucket/x", "needs a local directory"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(UserError, match=message):
        run_arguments.parse(arguments.split())


def test_the_program_is_asked_first(tmp_path):
    """It names the directory, and refuses what another environment has left there, unless that is
    to be moved aside. It knows --env_name by another name, too.
    """
    task = ["gym", "vtrace", "1", "--env=MountainCar-v0"]
    named = local.ask_program(run_arguments.parse(task))
    assert named.logdir == pathlib.Path.cwd() / "runs" / "gym-vtrace-MountainCar-v0"
    checkpoint = tmp_path / "run" / "checkpoints" / "ckpt-000001-step-000000000800"
    checkpoint.mkdir(parents=True)
    run_record.write(checkpoint, {"env_name": "CartPole-v1"})
    task.append(f"--logdir={tmp_path / 'run'}")
    with pytest.raises(UserError, match="--env_name was CartPole-v1, is now MountainCar-v0"):
        local.ask_program(run_arguments.parse(task))
    fresh = local.ask_program(run_arguments.parse([*task, "--restart=fresh"]))
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
    asked = local.ask_program(
        run_arguments.parse(["gym", "vtrace", "1", f"--logdir={tmp_path}/run"])
    )
    assert asked.logdir == tmp_path / "run"


def test_commands(tmp_path):
    """Learner and actors get the same flags, and agree on address and numbers of environments."""
    parsed = run_arguments.parse(
        f"atari vtrace 3 4 --logdir={tmp_path}/log --tensorboard=false --game=Pong".split()
    )
    supervisor = local.create_supervisor(parsed)
    learner = supervisor._learner_command(0, tmp_path)
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


def test_commands_of_several_learners(tmp_path):
    """Each actor connects to its own learner, where its task and environment ids count from 0."""
    parsed = run_arguments.parse(
        f"atari vtrace 4 3 --learners=2 --logdir={tmp_path}/log --tensorboard=false".split()
    )
    supervisor = local.create_supervisor(dataclasses.replace(parsed, learner_addresses="a:1,b:2"))
    learner = supervisor._learner_command(1, tmp_path)
    actor = supervisor._actor_command(3, tmp_path)
    shared = {
        f"--server_address=unix:{tmp_path}/server-1.sock",
        "--num_envs=6",
        "--learner_addresses=a:1,b:2",
        "--learner_index=1",
    }
    assert shared < set(learner) and {*shared, "--task=1"} < set(actor)


def test_a_flag_file_does_not_change_what_the_supervisor_sets(tmp_path):
    parsed = run_arguments.parse(
        f"gym vtrace 3 4 --logdir={tmp_path} --tensorboard=false --flagfile=my.flags".split()
    )
    learner = local.create_supervisor(parsed)._learner_command(0, tmp_path)
    after = learner[learner.index("--flagfile=my.flags") :]
    assert {"--run_mode=learner", "--num_envs=12", "--env_batch_size=4"} < set(after)


def test_a_flag_file_of_the_package_is_found_from_any_directory(tmp_path, monkeypatch):
    """Guards those who installed with pip, whose working directory has no sources."""
    monkeypatch.chdir(tmp_path)
    line = "atari vtrace 2 4 --game=Breakout --flagfile=seed_rl/atari/{} --logdir=run"
    parsed = run_arguments.parse(line.format("impala_paper.flags").split())
    assert local.ask_program(parsed).frames == 200_000_000
    with pytest.raises(UserError, match="seed_rl/atari/imapla.flags"):
        local.ask_program(run_arguments.parse(line.format("imapla.flags").split()))
    (tmp_path / "seed_rl/atari").mkdir(parents=True)
    (tmp_path / "seed_rl/atari/impala_paper.flags").write_text("--total_environment_frames=7\n")
    assert local.ask_program(parsed).frames == 7, "one of the working directory comes first"


def test_an_unknown_flag_names_the_help_that_lists_all():
    with pytest.raises(UserError, match=r"\(\./run_local\.sh gym vtrace --help lists the"):
        local.ask_program(run_arguments.parse(["gym", "vtrace", "1", "--learning_rat=3"]))


def test_actors_that_do_not_fit_are_refused(monkeypatch, capsys):
    """Guards the machine, which thousands of actors would freeze; nothing has started."""
    monkeypatch.setattr(local.memory, "available_bytes", lambda: 8_000_000_000)
    monkeypatch.setattr(local.subprocess, "run", None)
    assert local.main(["gym", "vtrace", "100000", "4"]) == 2
    message = capsys.readouterr().err
    assert "100,000 actors do not fit in memory" in message and "3,200.0 GB" in message
    assert "at most 250," in message
    local.check_memory(run_arguments.parse(["gym", "vtrace", "250", "4"]))


def test_a_port_of_another_program_is_refused(tmp_path):
    """Guards the panel from the address of another TensorBoard."""
    with socket.create_server(("localhost", 0)) as listener:
        port = f"--tensorboard_port={listener.getsockname()[1]}"
        task = ["gym", "vtrace", "1", f"--logdir={tmp_path}", port]
        with pytest.raises(UserError, match=f"{port}: another program listens there"):
            local.check_port(run_arguments.parse(task))
        local.check_port(run_arguments.parse([*task, "--tensorboard=false"]))


def test_flags_may_stand_anywhere():
    parsed = run_arguments.parse(
        "--game=Pong atari --nosave_model=true vtrace 3 --batch_size=3 2".split()
    )
    assert (parsed.actors, parsed.envs_per_actor) == (3, 2)
    assert parsed.flags == ("--game=Pong", "--nosave_model=true", "--batch_size=3")


@pytest.mark.parametrize(
    ("arguments", "code"), [([], 2), (["nothing", "vtrace", "1"], 2), (["--help"], 0)]
)
def test_the_script(repository, arguments, code):
    """A mistake is answered at once, before anything is installed, and without a traceback."""
    result = run(repository / "run_local.sh", *arguments, code=code)
    assert "usage: ./run_local.sh GAME AGENT ACTORS" in result.stdout + result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.count("error: ") == (1 if code else 0)
    assert len(result.stderr.splitlines()) <= 2


@pytest.mark.parametrize(
    ("line", "extra"), [("my.py 1", ""), ("external vtrace 1", ""), ("atari vtrace 1", "atari")]
)
def test_the_script_on_a_machine_without_python(repository, tmp_path, line, extra):
    """The set-up installs one; only then is it known what the game needs."""
    (tmp_path / "run_local.sh").write_text((repository / "run_local.sh").read_text())
    (tmp_path / "seed_rl").symlink_to(repository / "seed_rl")
    (tmp_path / "my.py").touch()
    for folder in ("scripts", "made"):
        (tmp_path / folder).mkdir()
    starts = f'[ "$2" = seed_rl.launch.local ] && echo "starts" || exec {sys.executable} "$@"'
    stand_in(tmp_path / "made/python", starts)
    links = f"mkdir -p {tmp_path}/.venv; ln -sfn {tmp_path}/made {tmp_path}/.venv/bin"
    stand_in(tmp_path / "scripts/setup.sh", f'echo "extra=$1"; {links}')
    variables = {"PYTHON": "/nowhere/python"}
    command = ("bash", tmp_path / "run_local.sh", *line.split())
    done = run(*command, code=0, variables=variables, cwd=tmp_path)
    assert done.stdout == f"extra=\nextra={extra}\nstarts\n"


@pytest.mark.parametrize(
    "line",
    [
        "gym r2d2 --learners=2 --insecure --help",
        "gym r2d2 0 8 --expose --remote_actors=64 --help",
        "--help gym r2d2 2 4 --gamma=0.9",
    ],
)
def test_help_of_an_agent_lists_its_options(repository, line):
    result = run(repository / "run_local.sh", *line.split(), code=0)
    for words in ("usage: ./run_local.sh GAME", "--restart=fresh", "--env_name", "--trace_lambda"):
        assert words in result.stdout
    assert "python -m seed_rl.gym" not in result.stdout


def test_help_of_a_program_that_imports_from_pythonpath(repository, tmp_path):
    """Guards the module path of the user, which a run itself has, too."""
    program(tmp_path, "lib/my_library.py")
    own = program(tmp_path, text="import my_library\nprint('its options')")
    variables = {"PYTHONPATH": str(tmp_path / "lib")}
    result = run(repository / "run_local.sh", own, "1", "--help", code=0, variables=variables)
    assert "its options" in result.stdout


def test_help_before_the_installation(monkeypatch, tmp_path, capsys):
    """Guards the message, which names the way to the options."""
    python = stand_in(
        tmp_path / "python", "echo ModuleNotFoundError: No module named \\'absl\\' >&2\nexit 1"
    )
    monkeypatch.setattr(sys, "executable", str(python))
    # It would be for the process, which runs other tests.
    monkeypatch.setattr(run_arguments.terminal, "end_without_reader", lambda: None)
    assert run_arguments.main(["atari", "vtrace", "--help"]) == 2
    assert "'absl'. Install the packages first: scripts/setup.sh atari\n" in capsys.readouterr().err


def test_help_of_stopping(repository):
    result = run(repository / "stop_local.sh", "--help")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("usage: seed-rl stop [LOGDIR]")


def test_only_the_standard_library(repository):
    """What runs before installing needs no package, and neither does stopping a run."""
    code = (
        "import sys; import seed_rl.launch.arguments, seed_rl.launch.stop, seed_rl.launch.guardian;"
        "bad = {n.split('.')[0] for n in sys.modules} - set(sys.stdlib_module_names);"
        "print(sorted(n for n in bad if not n.startswith('_')))"
    )
    result = run_python("-S", "-c", code, code=0, cwd=repository)
    assert result.stdout.strip() == "['seed_rl']"


def program(folder: pathlib.Path, name: str = "my_program.py", text: str = "") -> pathlib.Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("arguments", "agent", "actors", "envs"),
    [
        ("my_program.py r2d2 2 4", "r2d2", 2, 4),
        ("my_program.py 2 4", "", 2, 4),
        ("my_program.py 3", "", 3, 1),
        ("./my_program.py ppo 3 --size=2", "ppo", 3, 1),
    ],
)
def test_a_program_of_ones_own(tmp_path, monkeypatch, arguments, agent, actors, envs):
    """Guards the place of a program on the command line, with and without the agent's name."""
    program(tmp_path)
    monkeypatch.chdir(tmp_path)
    parsed = run_arguments.parse(arguments.split())
    assert parsed.program == ("-m", "my_program")
    assert (parsed.agent, parsed.actors, parsed.envs_per_actor) == (agent, actors, envs)
    assert (f"--agent={agent}" in parsed.flags) == bool(agent)
    assert games.extra(parsed.game) == ""


def test_programs_elsewhere_and_in_packages(tmp_path, monkeypatch):
    """A module where Python can import it, so that a package finds its other modules."""
    inside = program(tmp_path, "here/my_package/maze_main.py")
    outside = program(tmp_path, "there/maze_main.py")
    dashed = program(tmp_path, "here/my-program.py")
    monkeypatch.chdir(tmp_path / "here")
    for name, expected in (
        ("my_package/maze_main.py", ("-m", "my_package.maze_main")),
        (str(inside), ("-m", "my_package.maze_main")),
        (str(outside), (str(outside),)),
        ("my-program.py", (str(dashed),)),
    ):
        assert run_arguments.parse([name, "1"]).program == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("no_such.py vtrace 1", r"There is no file no_such\.py"),
        ("my_program.py", r"Expected PROGRAM\.py \[AGENT\] ACTORS .*, but got 1 argument "),
        ("my_program vtrace 1", r"Unknown game 'my_program'; .* give the path of its \.py file"),
    ],
)
def test_mistakes_with_a_program_of_ones_own(tmp_path, monkeypatch, arguments, message):
    program(tmp_path)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        run_arguments.parse(arguments.split())


NOT_A_PROGRAM = r"my_program\.py is not a SEED RL program"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "print('training')",
            rf"{NOT_A_PROGRAM}.*ignores --only_check_args; it printed: 'training'",
        ),
        ("import argparse; argparse.ArgumentParser().parse_args()", rf"{NOT_A_PROGRAM}.*run_mode"),
        ("from absl import app; app.run(print)", rf"{NOT_A_PROGRAM}.*run_mode"),
        ("import time; time.sleep(60)", rf"{NOT_A_PROGRAM}.*did not answer"),
        (
            "import no_such_module",
            r"my_program\.py: .*No module named 'no_such_module' \(.*py, line 1\)",
        ),
    ],
)
def test_files_that_are_no_programs(tmp_path, monkeypatch, text, message):
    program(tmp_path, text=text)
    monkeypatch.chdir(tmp_path)
    if "sleep" in text:
        monkeypatch.setattr(local, "_ANSWER_S", 2)
    with pytest.raises(UserError, match=message):
        local.ask_program(run_arguments.parse(["my_program.py", "1"]))


EXISTING = """
from absl import app
from seed_rl.common import common_flags

app.run(main=None)
"""


def test_a_program_written_for_the_original(tmp_path, monkeypatch):
    """Guards that it is checked without being run, since absl ends it after reading the flags."""
    program(tmp_path, text=EXISTING)
    monkeypatch.chdir(tmp_path)
    asked = local.ask_program(run_arguments.parse(["my_program.py", "1"]))
    assert asked.logdir == tmp_path / "runs" / "my_program"
    with pytest.raises(UserError, match="--expose"):
        local.ask_program(run_arguments.parse(["my_program.py", "1", "--server_address=[::]:8686"]))


EVERY_AGENT = """
import dataclasses
from seed_rl.common.acting.environment_family import EnvironmentFamily
from seed_rl.common.config.options import option
from seed_rl.gym import agents

@dataclasses.dataclass(frozen=True)
class Config:
    size: int = option(3, "Size.")

def create(task, config):
    raise AssertionError("only the flags are checked")

agents.main(EnvironmentFamily(Config, create))
"""
ONE_AGENT = EVERY_AGENT.replace("gym import agents", "agents.r2d2 import program").replace(
    "agents.main(", "program.main("
)


@pytest.mark.parametrize("text", [EVERY_AGENT, ONE_AGENT])
def test_the_agent_of_a_program(tmp_path, monkeypatch, text):
    """Guards --agent: it chooses, where a program has several, and must fit where it has one."""
    program(tmp_path, text=text)
    monkeypatch.chdir(tmp_path)
    asked = local.ask_program(run_arguments.parse(["my_program.py", "r2d2", "1", "--size=4"]))
    assert asked.logdir == tmp_path / "runs" / "my_program-r2d2"
    asked = local.ask_program(run_arguments.parse(["my_program.py", "1"]))
    assert asked.logdir == tmp_path / "runs" / "my_program"
    if text == EVERY_AGENT:
        for agent in ("sac", "ppo", "vtrace"):
            local.ask_program(run_arguments.parse(["my_program.py", agent, "1"]))
        with pytest.raises(UserError, match="--agent must be one of vtrace, r2d2, ppo, pqn, sac"):
            local.ask_program(run_arguments.parse(["my_program.py", "dqn", "1"]))
    else:
        with pytest.raises(UserError, match=r"my_program\.py: .*<r2d2>.*leave AGENT out"):
            local.ask_program(run_arguments.parse(["my_program.py", "vtrace", "1"]))
    with pytest.raises(
        UserError, match=r"my_program\.py: .*run_local.sh my_program.py --help lists"
    ):
        local.ask_program(run_arguments.parse(["my_program.py", "1", "--sise=4"]))
