"""The flags of a job, without flag files and duplicates; and the run's name."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence

from seed_rl.common.errors import UserError

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_REPEATED = ("gin_bindings", "gin_config")  # The program adds up their values.


def with_flag_files(flags: Sequence[str], reading: tuple[pathlib.Path, ...] = ()) -> list[str]:
    """The flags, with those of flag files in their place: images need not have the files.

    Args:
      flags: as given.
      reading: the files that these flags are from, each named by the one before.

    Raises:
      UserError: a file cannot be read, or includes itself.
    """
    found: list[str] = []
    for flag in flags:
        if not flag.startswith("--flagfile="):
            found.append(flag)
            continue
        path = pathlib.Path(flag.partition("=")[2])
        path = (path if path.exists() else REPOSITORY / path).resolve()
        if path in reading:
            raise UserError(
                f"{flag}: the file includes itself, perhaps through another: remove that line."
            )
        try:
            lines = path.read_text("utf-8").splitlines()
        except OSError as error:
            raise UserError(f"{flag}: {error.strerror}.") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{flag}: this is not a text file.") from error
        inner = [line for line in map(str.strip, lines) if line.startswith("-")]
        found += with_flag_files(inner, (*reading, path))
    return found


def last_of_each(flags: Sequence[str]) -> list[str]:
    """The flags without those that a later one overrides."""
    last = {_name(flag): i for i, flag in enumerate(flags)}
    return [
        flag for i, flag in enumerate(flags) if last[_name(flag)] == i or _name(flag) in _REPEATED
    ]


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]


def is_logdir(flag: str) -> bool:
    return _name(flag) in ("logdir", "job-dir")


def default_name(game: str, agent: str, flags: Sequence[str]) -> str:
    """GAME-AGENT-ENVIRONMENT, as far as the command line names them."""
    given = {_name(flag): flag.partition("=")[2] for flag in flags}
    environment = given.get("game") or given.get("env_name") or ""
    program = pathlib.Path(game).stem if game.endswith(".py") else game
    return "-".join(part for part in (program, agent, environment) if part)


def safe_name(name: str) -> str:
    """A name that is valid for jobs and folders."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]
