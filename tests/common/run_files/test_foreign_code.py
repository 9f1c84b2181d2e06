"""What `play` must not run unasked: code that a record names and that is not part of SEED RL."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from seed_rl.common.run_files import foreign_code

TRAP = "raise SystemExit('the trap was run')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory and home, with programs that must not run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "pack").mkdir()
    (tmp_path / "examples").mkdir()
    for module in ("trap", "pack/__init__", "pack/trap", "examples/ppo", "examples/__init__"):
        (tmp_path / f"{module}.py").write_text(TRAP)
    for name in ("trap.gin", "trap.txt", "a:b,c", "trap.gin,", "-trap"):
        (tmp_path / name).write_text("import \\\n  trap\ninclude'seed_rl/gym/gin/ppo.gin'\n")
    return tmp_path


def record(program: str = "seed_rl.gym.vtrace_main", *arguments: str) -> dict[str, Any]:
    return {"program": program, "arguments": list(arguments)}


@pytest.mark.parametrize(
    "program",
    [
        *("trap", "pack.trap", "trap.py", "pack/trap.py", "examples/ppo.py"),
        # What is installed: `timeit` runs its arguments, and so do some of SEED RL's own tools.
        *("timeit", "pip", "gymnasium.x_main", "seed_rl.launch.local", "seed_rl.study.__main__"),
    ],
)
def test_programs_that_are_not_of_seed_rl(folder: Path, program: str) -> None:
    (found,) = foreign_code.find(record(program, "--a=b c"))
    assert program in found and found.endswith("'--a=b c'")


def test_absolute_paths_and_links(folder: Path, repository: Path) -> None:
    """Guards against a link whose place looks harmless: what counts is where it leads."""
    assert foreign_code.find(record(str(folder / "trap.py"))) == [str(folder / "trap.py")]
    (folder / "ppo.py").symlink_to(repository / "examples" / "ppo.py")
    assert foreign_code.find(record(str(folder / "ppo.py"))) == []


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        ("--env=trap:make", ["trap:make"]),
        ("--env_name=subprocess:run", ["subprocess:run"]),
        ("--env_name=gymnasium:make_vec", ["gymnasium:make_vec"]),
        ("--env_name=seed_rl.play:main", ["seed_rl.play:main"]),
        ("--env_name=seed_rl.testing.envs:no", ["seed_rl.testing.envs:no"]),
        (
            '--env_wrappers=gymnasium.wrappers:ClipReward,"pack.trap:W"',
            ["gymnasium.wrappers:ClipReward", "pack.trap:W"],
        ),
        ("--gin_bindings=GAE.lambda_ = 1\nfrom trap import Trap", ["from trap import Trap"]),
        ("--gin_bindings=import \\\n trap", ["import trap"]),
        ("--gin_bindings=import trap\nx = [", ["import trap", "a gin config that cannot"]),
        ("--gin_bindings=@import('x')", ["a gin config that cannot"]),
        ("--gin_bindings=include'trap.txt'", ["{}/trap.txt", "import trap"]),
        ("--gin_bindings=from __gin__ import dynamic_registration", None),
        *(
            (f"--gin_config={name}", [f"{{}}/{place}", "import trap"])
            for name, place in (
                *(("trap.txt", "trap.txt"), ("~/trap.gin", "trap.gin"), ("a:b,c", "a:b,c")),
                *(("trap.gin,", "trap.gin,"), ("pack/../trap.gin", "trap.gin")),
            )
        ),
        ("--homepath=/tmp/lab", ["--homepath=/tmp/lab"]),
        ("--game=../../trap", ["--game=../../trap"]),
        ("--env=\x1b[2K\n:x", ["\\x1b[2K\\n:x"]),
        ("--gin_config", ["--gin_config"]),  # Its value would be the next argument.
    ],
)
def test_flags_that_name_code(folder: Path, argument: str, code: list[str] | None) -> None:
    """Guards the other ways in. The flag decides, not what its value looks like.

    Likewise of an option that is not among the arguments: it becomes the flag's default.
    """
    name, equals, value = argument.lstrip("-").partition("=")
    expected = [line.replace("{}", str(folder)) for line in ([value] if code is None else code)]

    def check(found: list[str]) -> None:
        assert [line.partition(" be parsed")[0] for line in found] == expected

    check(foreign_code.find(record("seed_rl.gym.ppo_main", argument)))
    if equals:
        for option in (value, ["seed_rl/gym/gin/ppo.gin", value] if "gin_c" in name else [value]):
            check(foreign_code.find({**record(), name: option}))


@pytest.mark.parametrize("name", ["gin_bindings", "gin_config", "env_name", "env_wrappers"])
@pytest.mark.parametrize("value", [{"import trap": 1}, [["import trap"]], 7])
def test_values_that_a_flag_may_take_apart(name: str, value: Any) -> None:
    """Guards lists hidden in other values: absl takes an object's keys for a list."""
    assert foreign_code.find({**record(), name: value}) == [f"--{name}={value}"]


def test_what_our_configs_include_from_the_working_directory(folder: Path) -> None:
    """gin looks there first, so a file there takes the place of the one that is meant."""
    fake = folder / "seed_rl/mujoco/gin/base.gin"
    fake.parent.mkdir(parents=True)
    fake.write_text("import trap\n")
    config = f"--gin_config={foreign_code._PACKAGE}/mujoco/gin/ppo.gin"
    assert foreign_code.find(record("seed_rl.mujoco.ppo_main", config)) == [
        str(fake),
        "import trap",
    ]


def test_includes_are_found_as_gin_finds_them(folder: Path) -> None:
    """Guards a folder named ~, which gin does not expand, and files that include each other."""
    (folder / "~").mkdir()
    (folder / "~/trap.gin").write_text("import trap\n")
    includes = "".join(f"include '{k}.gin'\n" for k in range(12))
    for k in range(12):
        (folder / f"{k}.gin").write_text(includes)
    found = foreign_code.find(record("a", "--gin_bindings=include '~/trap.gin'\ninclude '0.gin'"))
    assert found[1:3] == [str(folder / "~/trap.gin"), "import trap"] and len(found) == 15
    assert foreign_code.find(record("a", f"--gin_config={'x' * 999}"))[1:] == ["x" * 999]


def test_runs_of_every_day(folder: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (
        "--env=seed_rl.testing.envs:LifeStep-v0",
        "--env_name=CartPole-v1",
        "--gin_config=seed_rl/gym/gin/ppo.gin",
        f"--gin_config={repository}/seed_rl/mujoco/gin/ppo.gin",
        "--gin_bindings=GAE.lambda_ = 0.9",
        "--inference_devices=cpu:0",
        '--env_kwargs={"size": 9}',
        "--game=ALE/Pong-v5",
    )
    monkeypatch.delitem(sys.modules, "seed_rl.gym.ppo_main", raising=False)  # Of other tests.
    for program in ("seed_rl.gym.ppo_main", str(repository / "examples" / "ppo.py")):
        assert foreign_code.find(record(program, *arguments)) == []
    assert "seed_rl.gym.ppo_main" not in sys.modules


@pytest.mark.parametrize("damaged", [{}, {"program": "gone.py"}])
def test_records_that_cannot_be_run(damaged: dict[str, Any]) -> None:
    """Starting them reports the errors."""
    assert foreign_code.find({"arguments": [7, "--"], **damaged}) == []
    assert foreign_code.find({**damaged, "arguments": 7}) == []
