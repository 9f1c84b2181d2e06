"""What can be trained: every `seed_rl/<game>/<agent>_main.py`, and the user's own programs.

Standard library only, because `./run_local.sh` checks its arguments before installing anything.
"""

from __future__ import annotations

import contextlib
import difflib
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence

from seed_rl.common.errors import UserError

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_SUFFIX = "_main.py"
# Games whose environments need the extra of the same name (pyproject.toml).
_EXTRAS = ("atari", "dmlab", "football", "gym", "mujoco")
# Programs that check the flags that select a game's environment, and need no installation.
_CHECKS = {"atari": "seed_rl.atari.games"}


def available() -> dict[str, list[str]]:
    """The agents of each game."""
    games: dict[str, list[str]] = {}
    for main in sorted(_PACKAGE.glob(f"*/*{_SUFFIX}")):
        games.setdefault(main.parent.name, []).append(main.name[: -len(_SUFFIX)])
    return games


def main_module(game: str, agent: str) -> str:
    """The module to run with `python -m`.

    Raises:
      UserError: there is no such game, or it has no such agent.
    """
    games = available()
    if game not in games:
        raise UserError(
            f"Unknown game '{game}'; {choices(game, games)} (For your own program, give the path "
            "of its .py file.)"
        )
    if agent not in games[game]:
        raise UserError(f"{game} has no agent '{agent}'; {choices(agent, games[game])}")
    return f"seed_rl.{game}.{agent}_main"


def choices(typed: str, names: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known ones, and the nearest."""
    names = list(names)
    near = difflib.get_close_matches(typed.lower(), names, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    return f"choose from: {', '.join(names)}.{hint}"


def is_file(game: str) -> bool:
    """Whether this is a program of the user's instead of a game."""
    return game.endswith(".py")


def file_program(path: str) -> str:
    """The module of a program below the working directory, else the path of its file.

    A module, because programs in a package import its other modules by their full names.

    Raises:
      UserError: there is no such file.
    """
    file = pathlib.Path(path).expanduser().absolute()
    if not file.is_file():
        raise UserError(f"There is no file {path} (looked for {file}).")
    with contextlib.suppress(ValueError):  # The file is elsewhere.
        parts = file.relative_to(pathlib.Path.cwd()).with_suffix("").parts
        if all(part.isidentifier() for part in parts):
            return ".".join(parts)
    return str(file)


def check_environment(game: str, flags: Sequence[str]) -> None:
    """Checks the flags that select the environment, if that is possible before the installation.

    Afterwards the main program checks them, see `local.ask_program`.

    Raises:
      UserError: there is no such environment; the message suggests similar ones.
    """
    if game not in _CHECKS:
        return
    command = [sys.executable, "-m", _CHECKS[game], *flags]
    asked = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    if asked.returncode == UserError.exit_code:
        raise UserError(asked.stderr.strip())


def extra(game: str) -> str:
    """The extra to install for a game; "" if none."""
    return game if game in _EXTRAS else ""
