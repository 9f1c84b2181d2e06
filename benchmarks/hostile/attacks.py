"""The list of attacks, for the main defences of haproxy.cfg and the server."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from benchmarks.hostile import member_attacks, stranger_attacks
from benchmarks.hostile.stage import Stage


@dataclasses.dataclass(frozen=True)
class Attack:
    """One attack and what is special about it.

    Attributes:
      name: of the attack, for --attack.
      run: attacks until the stage's time is over.
      token: the server requires a token; honest clients have it.
      honest_function: what the honest client calls.
      honest_pause_s: how long it waits between calls.
      rate_mark: the honest rate is compared before and after this mark; None: it is not.
    """

    name: str
    run: Callable[[Stage], None]
    token: str | None = None
    honest_function: str = "double"
    honest_pause_s: float = 0.002
    rate_mark: str | None = None


def _attack(run: Callable[[Stage], None], **special: object) -> Attack:
    return Attack(run.__name__, run, **special)  # type: ignore[arg-type]


_STRANGERS = (
    stranger_attacks.silent,
    stranger_attacks.held_hellos,
    stranger_attacks.hello_ambush,
    stranger_attacks.no_certificate,
)
_MEMBERS = (
    member_attacks.reset_ambush,
    member_attacks.unwritable_health,
    member_attacks.partial_calls,
    member_attacks.slow_readers,
    member_attacks.many_streams,
    member_attacks.empty_strings,
)
_ALL = (
    *(_attack(run) for run in _STRANGERS),
    *(_attack(run, token="secret") for run in _MEMBERS),
    _attack(member_attacks.bad_rows, honest_function="picky", honest_pause_s=0.0, rate_mark="bad"),
)

ATTACKS = {attack.name: attack for attack in _ALL}
"""All attacks by name."""
