"""The list of attacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from benchmarks.hostile import connection_attacks, frame_attacks, message_attacks
from benchmarks.hostile.stage import Stage


@dataclasses.dataclass(frozen=True)
class Attack:
    """One attack and what is special about it.

    Attributes:
      name: of the attack, for --attack.
      run: attacks until the stage's time is over.
      description: one line.
      token: the server requires a token; honest clients have it.
      max_files: the server's limit of file descriptors; None: that of its parent.
      newcomers_during: new honest clients must get in during the attack, not only after it.
      per_connection: each of its connections may take little memory only.
      honest_function: what the honest client calls.
      honest_pause_s: how long it waits between calls.
      rate_mark: the honest rate is compared before and after this mark; None: it is not.
    """

    name: str
    run: Callable[[Stage], None]
    description: str
    token: str | None = None
    max_files: int | None = None
    newcomers_during: bool = True
    per_connection: bool = False
    honest_function: str = "double"
    honest_pause_s: float = 0.002
    rate_mark: str | None = None


def _attack(run: Callable[[Stage], None], **special: object) -> Attack:
    description = (run.__doc__ or "").splitlines()[0]
    return Attack(run.__name__, run, description, **special)  # type: ignore[arg-type]


_ALL = (
    # 500 connections use up 300 descriptors: no client can get in before they are closed.
    _attack(connection_attacks.descriptors, max_files=300, newcomers_during=False),
    _attack(connection_attacks.churn),
    _attack(connection_attacks.slowloris),
    _attack(connection_attacks.idle_connections, per_connection=True),
    _attack(connection_attacks.idle_streams, per_connection=True),
    _attack(connection_attacks.random_bytes),
    _attack(frame_attacks.rapid_reset),
    _attack(frame_attacks.short_resets),
    _attack(frame_attacks.ping_flood),
    _attack(frame_attacks.settings_flood),
    _attack(frame_attacks.deaf_peers),
    _attack(frame_attacks.large_headers),
    _attack(frame_attacks.continuation_flood),
    _attack(message_attacks.gzip_bomb),
    _attack(message_attacks.unread_unary, token="secret"),
    _attack(message_attacks.unwritable_health, token="secret"),
    _attack(message_attacks.tiny_pieces, token="secret"),
    _attack(message_attacks.partial_calls),
    _attack(message_attacks.partial_calls_of_strangers, token="secret"),
    _attack(message_attacks.slow_readers),
    _attack(message_attacks.many_streams),
    _attack(message_attacks.slow_function),
    _attack(message_attacks.empty_strings),
    _attack(message_attacks.bad_rows, honest_function="picky", honest_pause_s=0.0, rate_mark="bad"),
)

ATTACKS = {attack.name: attack for attack in _ALL}
"""All attacks by name."""
