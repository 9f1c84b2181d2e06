"""What `play` must not run unasked: code that a record names and nobody has installed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from seed_rl.common.run_files import foreign_code

TRAP = "raise SystemExit('the trap was run')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with programs that must not run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text(TRAP)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text(TRAP)
    (tmp_path / "pack" / "trap.py").write_text(TRAP)
    (tmp_path / "space").mkdir()  # A package without __init__.py.
    (tmp_path / "space" / "trap.py").write_text(TRAP)
    (tmp_path / "trap.gin").write_text("import trap\n")
    return tmp_path


def record(program: str = "seed_rl.gym.vtrace_main", *arguments: str) -> dict[str, Any]:
    return {"program": program, "arguments": list(arguments)}


@pytest.mark.parametrize("program", ["trap", "pack.trap", "space.trap", "trap.py", "pack/trap.py"])
def test_programs_from_anywhere(folder: Path, program: str) -> None:
    """Also from the working directory: a logdir may have been unpacked there. None is run."""
    (found,) = foreign_code.find(record(program))
    assert str(folder / program.split(".")[0].split("/")[0]) in found


def test_absolute_paths_and_links(folder: Path, repository: Path) -> None:
    """Guards against a link whose place looks harmless: what counts is where it leads."""
    assert foreign_code.find(record(str(folder / "trap.py"))) == [str(folder / "trap.py")]
    (folder / "ppo.py").symlink_to(repository / "examples" / "ppo.py")
    assert foreign_code.find(record(str(folder / "ppo.py"))) == []


@pytest.mark.parametrize(
    "argument",
    [
        "--env=trap:make",
        "--env_name=pack.trap:Trap-v0",
        "--env_wrappers=gymnasium.wrappers:ClipReward,space.trap:Wrapper",
        "--env=subprocess:run",
        "--gin_config=seed_rl/gym/gin/ppo.gin,trap.gin",
        "--gin_bindings=import trap",
        "--gin_bindings=GAE.lambda_ = 1\nfrom trap import Trap",
        "--flagfile=/tmp/flags",
    ],
)
def test_flags_that_name_code(folder: Path, argument: str) -> None:
    """Guards the other ways in: environments, wrappers and gin configs are code, too."""
    assert len(foreign_code.find(record("seed_rl.gym.ppo_main", argument))) == 1


def test_modules_of_python_itself(folder: Path) -> None:
    """`timeit` runs its arguments."""
    (found,) = foreign_code.find(record("timeit", "--setup=x = 1"))
    assert found == "timeit of Python's standard library"


def test_what_is_installed_or_of_this_project(folder: Path, repository: Path) -> None:
    """Guards runs of every day from a question."""
    arguments = (
        "--env=seed_rl.testing.envs:LifeStep-v0",
        "--env_name=CartPole-v1",
        "--env_wrappers=gymnasium.wrappers:ClipReward",
        "--gin_config=seed_rl/gym/gin/ppo.gin",
        "--gin_bindings=GAE.lambda_ = 0.9",
        "--inference_devices=cpu:0",
        '--env_kwargs={"size": 9}',
    )
    for program in ("seed_rl.gym.ppo_main", str(repository / "examples" / "ppo.py")):
        assert foreign_code.find(record(program, *arguments)) == []
    assert "seed_rl.gym.ppo_main" not in sys.modules


def test_a_folder_that_the_user_has_set(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONPATH counts as installed, unless the working directory hides its module."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name in ("theirs.py", "trap.py"):
        (elsewhere / name).write_text(TRAP)
    monkeypatch.syspath_prepend(str(elsewhere))
    assert foreign_code.find(record("theirs")) == []
    assert len(foreign_code.find(record("trap"))) == 1


@pytest.mark.parametrize("damaged", [{}, {"program": 7}, {"program": "gone.py"}, record("no.such")])
def test_records_that_cannot_be_run(damaged: dict[str, Any]) -> None:
    """Starting reports what is wrong with them."""
    assert foreign_code.find({"arguments": [7, "--"], **damaged}) == []
    assert foreign_code.find({**damaged, "arguments": 7}) == []
