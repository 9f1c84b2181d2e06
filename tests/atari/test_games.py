"""The names of Atari games, which are checked before anything is installed."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from seed_rl.atari import games
from seed_rl.common.errors import UserError
from seed_rl.launch import arguments, local
from tests.helpers import run


def test_the_names_are_those_of_ale() -> None:
    """Guards the list that is used where ALE is not installed yet."""
    roms = pytest.importorskip("ale_py.roms")
    assert sorted(games.NAMES) == sorted(roms.get_all_rom_ids())


@pytest.mark.parametrize(
    "name",
    ["SpaceInvaders", "space_invaders", "ALE/SpaceInvaders-v5", "SpaceInvadersNoFrameskip-v4"],
)
def test_spellings(name: str) -> None:
    assert games.rom_name(name, games.NAMES) == "space_invaders"


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ([], 0, ""),
        (["--batch_size=3", "--game=ms_pacman"], 0, ""),
        (["--game=Pnog"], 2, "Unknown Atari game 'Pnog'. Did you mean Pong"),
        (["--game=..."], 2, "Unknown Atari game '...'. Did you mean Pong, Breakout, Space"),
        (
            ["--game=Pong", "--game=Brakeout"],
            2,
            "Unknown Atari game 'Brakeout'. Did you mean Breakout",
        ),
        (["--game=Pnog", "--game=Pong"], 0, ""),
    ],
)
def test_flags_are_checked_without_any_package(
    repository: Any, flags: list[str], code: int, said: str
) -> None:
    """Guards the check before the installation; of several flags the last counts, as for absl."""
    command = [sys.executable, "-S", "-m", "seed_rl.atari.games", *flags]
    result = run(*command, code=code, cwd=repository)
    assert result.stderr.startswith(said) and len(result.stderr.splitlines()) == bool(said)


def test_run_local_checks_the_game_before_it_installs(repository: Any) -> None:
    """Guards new users from waiting minutes for an installation before a typo is reported."""
    command = [repository / "run_local.sh", "atari", "vtrace", "1", "--game=Brakeout"]
    result = run(*command, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("error: Unknown Atari game 'Brakeout'. Did you mean Breakout")


def test_the_program_checks_the_game_before_it_starts(tmp_path: Any) -> None:
    """Guards a case that `./run_local.sh` does not check: a game in a flag file."""
    flagfile = tmp_path / "my.flags"
    flagfile.write_text("--game=Brakeout\n")
    parsed = arguments.parse(["atari", "r2d2", "1", f"--flagfile={flagfile}"])
    with pytest.raises(UserError, match="Unknown Atari game 'Brakeout'. Did you mean Breakout"):
        local.ask_program(parsed)
