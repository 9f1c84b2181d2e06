"""The process that attacks: run by `benchmarks.hostile`, takes commands."""

from __future__ import annotations

import os
from typing import Any

from benchmarks import processes
from benchmarks.hostile.attacks import ATTACKS
from benchmarks.hostile.stage import Stage

_NICENESS = 10  # Attackers are other machines: they should not take the server's processor.


def attack(name: str, port: int, secrets: str, token: str | None, seconds: float) -> dict[str, Any]:
    """Runs an attack; returns its counts and marks."""
    with Stage(port, secrets, token, seconds) as stage:
        ATTACKS[name].run(stage)
        return {"counts": dict(stage.counts), "marks": stage.marks}


if __name__ == "__main__":
    os.nice(_NICENESS)
    processes.serve_commands(attack)
