"""The run's name, from its flags."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Sequence


def _name(flag: str) -> str:
    return flag.lstrip("-").partition("=")[0]


def is_logdir(flag: str) -> bool:
    return _name(flag) in ("logdir", "job-dir")


def default_name(game: str, agent: str, flags: Sequence[str]) -> str:
    """GAME-AGENT-ENVIRONMENT, as far as the command line names them."""
    given = {_name(flag): flag.partition("=")[2] for flag in flags}
    environment = given.get("game") or given.get("env_name") or given.get("env") or ""
    program = pathlib.Path(game).stem if game.endswith(".py") else game
    return "-".join(part for part in (program, agent, environment) if part)


def safe_name(name: str) -> str:
    """A name that is valid for jobs and folders."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100]
