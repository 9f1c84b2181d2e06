"""Messages to a new run about the one that is saved in its directory."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
from absl import flags

from seed_rl.common.config import flag_origins, options
from seed_rl.common.config.network_config import MLPNetworkConfig
from seed_rl.common.config.options import option
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import foreign_code, run_record, saved_flags, saved_run
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
    assert "--kwargs was none, is now {}" in message
    for way_out in (
        "train anew with another --logdir",
        "--restart=fresh",
        f"--init_checkpoint={tmp_path}",
    ):
        assert way_out in message


def test_another_network_is_refused_even_where_its_weights_fit(tmp_path):
    save(tmp_path, mlp_activation="tanh", learning_rate=0.1, mlp_sizes=(64,))
    now = {"mlp_activation": "tanh", "learning_rate": 0.2, "mlp_sizes": (64,), "lstm_sizes": ()}
    network = options.network_options(MLPNetworkConfig())
    assert saved_run.refusal(tmp_path, {}, now, network) is None
    message = saved_run.refusal(tmp_path, {}, {**now, "mlp_activation": "relu"}, network)
    assert "--mlp_activation was tanh, is now relu" in message and "learning_rate" not in message
    for way_out in (
        "train anew with another --logdir",
        "--restart=fresh",
        f"--init_checkpoint={tmp_path}",
    ):
        assert way_out in message


def test_a_checkpoint_of_an_original_program_is_refused(tmp_path):
    """Guards a run from starting at frame 0 beside it; one of ours has continued from there."""
    for name in ("checkpoint", "ckpt-1.index", "ckpt-1.data-00000-of-00001"):
        (tmp_path / name).touch()
    message = saved_run.refusal(tmp_path, {})
    assert "a checkpoint of an original SEED RL program (ckpt-1)" in message
    for way_out in ("another --logdir", "--restart=fresh", f"--init_checkpoint={tmp_path}/ckpt-1"):
        assert way_out in message
    save(tmp_path)
    assert saved_run.refusal(tmp_path, {}) is None


@dataclasses.dataclass(frozen=True)
class Adopted:
    """Options of the tests below."""

    adopted_rate: float = option(0.1, "")
    adopted_kind: str = option("a", "", choices=("a", "b"))
    adopted_sizes: tuple[int, ...] = option((1,), "")
    adopted_lines: tuple[str, ...] = option((), "", repeated=True)
    adopted_limit: float | None = option(1.0, "")
    adopted_new: int = option(3, "")
    adopted_shown: str | None = option(None, "", neutral=True)


@pytest.fixture
def adopting():
    """Defines the flags as a program with a preset does; returns those that a command line sets."""
    from seed_rl.common.config import flag_definitions

    options.define_flags(Adopted, presets=(options.Preset("test", {"adopted_new": 5}),))
    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
    defined = {field.name: flags.FLAGS[field.name] for field in dataclasses.fields(Adopted)}
    yield defined
    for name, flag in defined.items():
        flag_definitions._defaults.pop(flag)
        delattr(flags.FLAGS, name)


def test_what_nobody_types_stays_as_the_run_was_started(adopting):
    """Guards every kind of flag, None, an option younger than the run, and values that the program
    computes from a flag's.
    """
    record = {
        "adopted_rate": 0.5,
        "adopted_kind": "b",
        "adopted_sizes": [7, 8],
        "adopted_lines": ["x = 1,2", "y"],
        "adopted_limit": None,
        "adopted_shown": "human",
        "arguments": ["--adopted_sizes=3,4"],
        "origins": {"adopted_sizes": "program"},
    }
    adopting["adopted_kind"].present = 1  # As `--adopted_kind=a` does.
    adopting["adopted_kind"].using_default_value = False
    adopting["adopted_kind"].value = "a"
    kept = [change for change in saved_flags.adopt(record) if change.startswith("--adopted")]
    lines = ("x = 1,2", "y")
    assert options.from_flags(Adopted) == Adopted(0.5, "a", (3, 4), lines, None, 3, None)
    assert "--adopted_rate=0.5 (default now: 0.1)" in kept
    assert "--adopted_new=3 (default now: 5)" in kept
    origins = flag_origins.origins(dataclasses.asdict(options.from_flags(Adopted)))
    assert origins["adopted_rate"] == origins["adopted_new"] == "saved run"


def test_a_value_typed_by_an_alias_stays(adopting):
    """Guards `--env=X`: to absl, the flag is then present and still has its default."""
    flags.DEFINE_alias("adopted_alias", "adopted_rate")
    try:
        flags.FLAGS["adopted_alias"].parse("0.25")
        saved_flags.adopt({"adopted_rate": 0.5})
        assert flags.FLAGS["adopted_rate"].present and flags.FLAGS.adopted_rate == 0.25
    finally:
        delattr(flags.FLAGS, "adopted_alias")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"adopted_kind": "c"}, "has --adopted_kind=c, which is no longer valid .*Give"),
        ({"adopted_rate": [1]}, "has --adopted_rate=1, which is no longer valid"),
        (
            {"adopted_lines": ["elsewhere:make"]},
            "--adopted_lines that runs code .elsewhere:make.* Give the flag",
        ),
    ],
)
def test_values_that_cannot_be_kept(adopting, monkeypatch, values, message):
    """Guards removed choices, damage, and code that the file's author has chosen."""
    monkeypatch.setitem(foreign_code._CODE, "adopted_lines", foreign_code._wrappers)
    with pytest.raises(UserError, match=message):
        saved_flags.adopt(values)


def test_the_same_environment_continues(tmp_path):
    """Guards types that JSON changes, options that came later, and options that are no one's
    environment: the learning rate may change.
    """
    save(tmp_path, game="Pong", levels=(1, 2), learning_rate=0.1)
    assert saved_run.refusal(tmp_path, {"game": "Pong", "levels": (1, 2), "new": 3}) is None


def test_a_directory_that_cannot_be_read_is_no_traceback(tmp_path):
    """Guards against a run that starts over beside checkpoints that are temporarily unreadable."""
    (tmp_path / "checkpoints").symlink_to("checkpoints")
    with pytest.raises(UserError, match="Cannot read .*checkpoints: "):
        saved_run.refusal(tmp_path, {})


@pytest.mark.parametrize("text", ["[1, 2]", "7", "[" * 99_999, "{"])
def test_options_that_cannot_be_read_refuse_nothing(tmp_path, text):
    """Restoring reports the damage."""
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
    """Guards files: absl would write the profile to the one that a foreign record names."""
    with pytest.raises(UserError, match=f"no run records --.*{flag.removeprefix('no')}"):
        run_record.start_again({"program": "timeit", "arguments": ["--a=b", f"--{flag}=x"]}, [])


def test_a_linked_program_imports_what_is_beside_its_file(tmp_path):
    """Guards a link to a program that we know: what is beside the link may be anyone's."""
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside.py").write_text(f"print({name!r})")
    (tmp_path / "ours/main.py").write_text("import beside")
    link = tmp_path / "theirs/main.py"
    link.symlink_to(tmp_path / "ours/main.py")
    code = "from seed_rl.common.run_files.run_record import start_again; "
    code += f"start_again({{'program': {str(link)!r}, 'arguments': []}}, [])"
    assert run_python("-c", code, code=0).stdout == "ours\n"


def test_flags_of_every_kind_are_recorded_as_arguments():
    """Guards lines in the values of repeated flags, and flags without a serializer."""
    given = ["--lines=a\nb", "--lines=c", "--nono", "--numbers=1", "--numbers=2", "--yes"]
    result = run_python(PROGRAMS / "recorded_arguments.py", *given, "--raw=x", code=0)
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
    """Guards options that only show an environment."""

    @dataclasses.dataclass(frozen=True)
    class Maze:
        """Maze"""

        size: int = option(9, "")
        render_mode: str | None = option(None, "", neutral=True)

    assert options.environment_identity(Maze()) == {"size": 9}
    assert options.environment_identity(None) == {}


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
    """Guards the launcher's check before it changes a directory."""
    record = {"program": "seed_rl.atari.vtrace_main", "game": "Breakout", "sticky_actions": False}
    record |= {"learning_rate": 0.25}
    run_record.write(save(tmp_path), record)
    flags = [f"--logdir={tmp_path}", "--learning_rate=0.5", "--novectorized"]
    answers = [
        json.loads(ask(tmp_path, f"seed_rl.atari.{main}_main", *flags, *more).stdout)
        for main, more in (
            ("vtrace", []),
            ("vtrace", ["--game=Pong"]),
            ("vtrace", ["--sticky_actions"]),
            ("r2d2", []),
        )
    ]
    refusals = [answer["refusal"] for answer in answers]
    assert refusals[0] is None
    assert answers[0]["kept"] == ["--game=Breakout (default now: Pong)"]
    assert answers[0]["changed"] == ["--learning_rate was 0.25, is now 0.5"]
    assert "--game was Breakout, is now Pong" in refusals[1]
    assert "--sticky_actions was false, is now true" in refusals[2]
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
    return run_python(*arguments, code=0, cwd=directory)
