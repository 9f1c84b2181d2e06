"""Facade: its import defines the flags of learners and actors, as that of the original."""

from seed_rl.compat import common_flags  # noqa: F401 - defines flags.
