"""The names of Atari games, even where ALE is not installed yet. Standard library only.

`./run_local.sh` asks this module before it installs anything, so that a typo does not cost minutes:

    python -m seed_rl.atari.games --game=SpaceInvaders
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Sequence

from seed_rl.common.errors import UserError

NAMES = tuple(
    """
    adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon
    bank_heist basic_math battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival
    casino centipede chopper_command combat crazy_climber crossbow darkchambers defender
    demon_attack donkey_kong double_dunk earthworld elevator_action enduro entombed et fishing_derby
    flag_capture freeway frogger frostbite galaxian gopher gravitar hangman haunted_house hero
    human_cannonball ice_hockey jamesbond journey_escape joust kaboom kangaroo keystone_kapers
    king_kong klax koolaid krull kung_fu_master laser_gates lost_luggage mario_bros maze_craze
    miniature_golf montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall
    pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank seaquest sir_lancelot
    skiing solaris space_invaders space_war star_gunner superman surround tennis tetris
    tic_tac_toe_3d time_pilot trondead turmoil tutankham up_n_down venture video_checkers
    video_chess video_cube video_pinball warlords wizard_of_wor word_zapper yars_revenge zaxxon
    """.split()
)
"""ALE's names of its games, of version 0.12."""


def available() -> Sequence[str]:
    """The names of the installed ALE's games; without ALE, `NAMES`."""
    try:
        from ale_py import roms
    except ImportError:
        return NAMES
    names: Sequence[str] = roms.get_all_rom_ids()
    return names


def rom_name(game: str, names: Iterable[str]) -> str:
    """ALE's name of a game in any spelling, e.g. `space_invaders` for `SpaceInvaders`.

    Args:
      game: the name to look for.
      names: ALE's names of the games that there are.

    Raises:
      UserError: there is no such game; suggests similar names.
    """
    known = {_key(name): name for name in names}
    # Other versions are not ALE's: Blackjack-v1 is Gymnasium's game of cards.
    bare = _key(re.sub(r"^ALE/|(NoFrameskip|Deterministic)?-v[045]$", "", game))
    if bare not in known:
        titles = similar(bare, known.values(), 0.5) or ["Pong", "Breakout", "SpaceInvaders"]
        raise UserError(f"Unknown Atari game '{game}'. Did you mean {', '.join(titles)}?")
    return known[bare]


def similar(game: str, names: Iterable[str], cutoff: float) -> list[str]:
    """Up to three titles of games whose names resemble `game`, in `difflib`'s measure."""
    known = {_key(name): name for name in names}
    return [_title(known[key]) for key in difflib.get_close_matches(_key(game), known, 3, cutoff)]


def _key(name: str) -> str:
    return name.replace("_", "").lower()


def _title(rom: str) -> str:
    return rom.title().replace("_", "")


def main(flags: Sequence[str]) -> int:
    """Checks --game among the flags of a run, and ignores all other flags."""
    given = [flag.partition("=")[2] for flag in flags if flag.lstrip("-").startswith("game=")]
    try:
        for game in given[-1:]:
            rom_name(game, available())
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
