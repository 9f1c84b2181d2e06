"""The games and agents that can be trained: every `seed_rl/<game>/<agent>_main.py`.

Standard library only, because `./run_local.sh` checks its arguments before installing anything.
"""

from __future__ import annotations

import pathlib

from seed_rl.common.errors import UserError

_PACKAGE = pathlib.Path(__file__).resolve().parents[1]
_SUFFIX = "_main.py"
# Games whose environments need the extra of the same name (pyproject.toml).
_EXTRAS = ("atari", "dmlab", "football", "gym", "mujoco")


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
        raise UserError(f"Unknown game '{game}'; choose from: {', '.join(games)}.")
    if agent not in games[game]:
        raise UserError(f"{game} has no agent '{agent}'; choose from: {', '.join(games[game])}.")
    return f"seed_rl.{game}.{agent}_main"


def extra(game: str) -> str:
    """The extra to install for a game; "" if none."""
    return game if game in _EXTRAS else ""
