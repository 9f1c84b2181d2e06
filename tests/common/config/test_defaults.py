"""Layers of defaults, and where an option's value comes from."""

import dataclasses
import importlib
import json
import os
import re
from concurrent import futures

import pytest

from seed_rl.agents.vtrace.config import VTraceConfig
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.network_config import (
    ConvNetworkConfig,
    MLPNetworkConfig,
    ObservationConfig,
)
from seed_rl.common.config.optimizer_config import OptimizerConfig
from tests.helpers import PROGRAMS, REPOSITORY, run_python


def run(*arguments, settings=None, **kwargs):
    return run_python(
        PROGRAMS / "presets_program.py", json.dumps(settings or {}), *arguments, **kwargs
    )


def answer(*arguments, **kwargs):
    return json.loads(run(*arguments, code=0, **kwargs).stdout)


@pytest.fixture
def flag_file(tmp_path):
    """Writes a flag file and returns its path; relative to `tmp_path`, nested ones are found."""

    def write(name, *lines):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return str(tmp_path / name)

    return write


def test_layers_are_applied_in_order():
    """Guards: dataclass, then each preset, then the program's own defaults; and that an option
    equal to the dataclass's default is not listed, whatever set it.
    """
    got = answer(settings={"defaults": {"name": "b"}})
    assert got["values"]["width"] == 2.0
    assert (got["values"]["depth"], got["values"]["sizes"]) == (3, [3])
    assert got["changed"] == {
        "width": "agent preset",
        "depth": "agent on boxes preset",
        "sizes": "agent preset",
        "name": "program",
    }
    assert got["every"]["round"] == "dataclass"
    assert got["every"]["height"] == "agent on boxes preset"


def test_the_command_line_wins_over_presets():
    got = answer("--depth=9", "--sizes", "7,8", "--round", "--label=c", "-own", "6")
    assert got["values"]["sizes"] == [7, 8]
    assert got["changed"] == {
        "width": "agent preset",
        **dict.fromkeys(("depth", "sizes", "round", "name", "own"), "command line"),
    }
    back = answer("--width=1", "--noround")
    assert "width" not in back["changed"], "back to the dataclass's default"
    assert back["every"]["width"] == back["every"]["round"] == "command line"


@pytest.mark.parametrize("form", ["--flagfile={}", "-flagfile={}", "--flagfile {}"])
def test_the_later_of_flag_file_and_command_line_wins(flag_file, form):
    """Guards absl's order: a flag file counts at its place on the command line."""
    path = flag_file("a.flags", "# --width=6", "", "--depth=4", "--round", "--name", "d")
    given = form.format(path).split(" ")
    got = answer("--depth=5", *given, "--width=5")
    assert (got["values"]["depth"], got["values"]["width"]) == (4, 5.0)
    source = f"flag file {path}"
    assert got["changed"]["depth"] == got["changed"]["round"] == got["changed"]["name"] == source
    assert got["changed"]["width"] == "command line"
    got = answer(*given, "--depth=5")
    assert (got["values"]["depth"], got["changed"]["depth"]) == (5, "command line")


def test_nested_flag_files_are_named(flag_file, tmp_path):
    """Guards the innermost file's name, and its place."""
    flag_file("inner.flags", "--depth=6", "--width=6")
    flag_file("outer.flags", "--depth=5", "--flagfile=inner.flags", "--width=7")
    got = answer("--flagfile=outer.flags", cwd=tmp_path)
    assert (got["values"]["depth"], got["values"]["width"]) == (6, 7.0)
    assert got["changed"]["depth"] == "flag file inner.flags"
    assert got["changed"]["width"] == "flag file outer.flags"


@pytest.mark.parametrize("parsed_by_absl", [False, True])
def test_a_pipe_as_a_flag_file_is_read_once(parsed_by_absl, tmp_path):
    """Guards `--flagfile=<(...)`, which a second reader finds empty, or waits for."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    settings = {"gnu": False} if parsed_by_absl else {}
    with futures.ThreadPoolExecutor(1) as writer:
        writer.submit(path.write_text, "--depth=8\n")
        got = answer(f"--flagfile={path}", "--width=4", settings=settings)
    assert got["values"]["depth"] == 8
    origin = "command line" if parsed_by_absl else f"flag file {path}"
    assert got["changed"]["depth"] == origin
    assert got["changed"]["width"] == "command line"


@pytest.mark.parametrize("gnu", [True, False])
def test_positional_arguments(flag_file, gnu):
    """Guards flags after them, which count unless the program does without absl's GNU style."""
    path = flag_file("a.flags", "--depth=8")
    arguments = ["--width=3", "game", "-", f"--flagfile={path}", "--height=5", "--", "--height=6"]
    got = answer(*arguments, settings={"gnu": gnu})
    assert got["every"]["width"] == "command line"
    assert got["every"]["depth"] == (f"flag file {path}" if gnu else "agent on boxes preset")
    assert got["every"]["height"] == ("command line" if gnu else "agent on boxes preset")


def test_unknown_flags_that_are_allowed_change_nothing():
    got = answer("--undefok", "colour", "--colour=red", "--depth=5")
    assert got["changed"]["depth"] == "command line"


def test_a_replayed_run_keeps_its_origins():
    """Guards that a saved run's arguments do not appear as those of this command line."""
    arguments = ("--width=7", "--depth=3", "--height=1", "--depth=9")
    record = {"arguments": arguments[:3], "origins": {"width": "flag file x"}}
    got = answer(*arguments, settings={"replayed": record})
    assert got["every"]["width"] == "flag file x"
    assert got["every"]["height"] == "dataclass"
    assert got["every"]["depth"] == "command line"
    got = answer(*arguments, settings={"replayed": {"arguments": arguments[:3]}})
    assert got["every"]["width"] == "saved run"


def test_help_names_the_preset():
    text = " ".join(run("--help").stdout.split())
    assert "Depth. Default from the agent on boxes preset (library default: 1). (default: '3')" in (
        text
    )
    assert "Sizes. Default from the agent preset (library default: 1,2)." in text
    assert "Height. (default: '1')" in text, "the same value needs no remark"


def test_a_preset_with_an_unknown_option_is_a_bug_of_the_program():
    result = run(settings={"typo": True})
    assert "No such options: dept (agent on boxes preset)" in result.stderr


PAGES = REPOSITORY / "docs" / "agents"
DOCUMENTED = [
    *("gym vtrace", "atari vtrace", "mujoco vtrace", "atari r2d2", "gym r2d2", "mujoco sac"),
    *("gym sac", "atari pqn", "gym pqn", "mujoco ppo", "atari ppo", "gym ppo"),
]


def documented(program, column=None):
    """The column of a program, or another one, of its agent's page, by option."""
    page = {"ppo": "policy_gradient"}.get(program.split()[1], program.split()[1])
    text = (PAGES / f"{page}.md").read_text().partition("\n## Defaults\n")[2].partition("\n## ")[0]
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    place, shown = header.index(column or f"`{program}`"), {}
    for row in rows:
        names, value = re.findall("`--([a-z0-9_]+)`", row[0]), row[place]
        values = value.split(", ") if ", " in value else [value] * len(names)
        shown.update(zip(names, values, strict=True) if value else {})
    return shown


def as_documented(text, value):
    """The text of a table as the value of an option of the same type as `value`."""
    if isinstance(value, bool) or value is None or text == "none":
        return {"true": True, "false": False, "none": None}.get(text, text)
    if isinstance(value, (int, float)):
        return float(text.replace(",", ""))
    if isinstance(value, list):
        return [type(value[0])(item) for item in text.split(",")]
    return text


@pytest.mark.parametrize("program", DOCUMENTED)
def test_effective_defaults_of_the_programs(program):
    """Guards the tables in docs/agents, and results in docs/results, which are of these values."""
    module = f"seed_rl.{program.replace(' ', '.')}_main"
    result = run_python(PROGRAMS / "effective_options.py", module, code=0)
    values, changed, origins = json.loads(result.stdout)
    table = documented(program)
    shown = {name: as_documented(text, values[name]) for name, text in table.items()}
    assert shown == {name: values[name] for name in table}
    assert set(changed) <= {*table, "env_name"}, "all others are the dataclasses' defaults"
    assert sorted(origins) == changed
    origins.pop("env_name", None)  # Of `gym sac`'s program.
    assert set(origins.values()) <= {f"{program} preset", f"{program.split()[1]} preset"}


def test_defaults_of_the_library():
    """Guards the first column of V-trace's table."""
    configs = VTraceConfig, LearnerConfig, OptimizerConfig, ConvNetworkConfig, MLPNetworkConfig
    known = {f.name: f.default for config in configs for f in dataclasses.fields(config)}
    known |= {f.name: f.default for f in dataclasses.fields(ObservationConfig)}
    for name, text in documented("gym vtrace", "library").items():
        assert as_documented(text, known[name]) == known[name], name


@pytest.mark.parametrize("family", ["dmlab.vtrace", "football.vtrace"])
def test_programs_for_images_compute_in_the_fastest_type(family):
    """As those of the tables do."""
    module = importlib.import_module(f"seed_rl.{family}_main")
    assert module.PRESET.values["compute_dtype"] == "auto"
