"""Which games and agents can be trained: the packages of `seed_rl` that have main programs.

A new `seed_rl/<game>/<agent>_main.py` is found by itself. Only the standard library is used, as
`./run_local.sh` checks its arguments before anything is installed.
"""

from __future__ import annotations

import pathlib

from seed_rl.common.errors import UserError

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_SUFFIX = "_main.py"
# Games whose environments come with an extra of that name (pyproject.toml).
_EXTRAS = ("atari", "gym", "mujoco")


def available() -> dict[str, list[str]]:
    """The agents of each game."""
    games: dict[str, list[str]] = {}
    for main in sorted(_PACKAGE.glob(f"*/*{_SUFFIX}")):
        games.setdefault(main.parent.name, []).append(main.name[: -len(_SUFFIX)])
    return games


def main_module(game: str, agent: str) -> str:
    """The module to run with `python -m`.

    Raises:
      UserError: no such game, or it has no such agent.
    """
    games = available()
    if game not in games:
        raise UserError(f"There is no game '{game}'; there are: {', '.join(games)}.")
    if agent not in games[game]:
        raise UserError(f"{game} has no agent '{agent}'; it has: {', '.join(games[game])}.")
    return f"seed_rl.{game}.{agent}_main"


def extra(game: str) -> str:
    """The extra to install for a game, or ""."""
    return game if game in _EXTRAS else ""
