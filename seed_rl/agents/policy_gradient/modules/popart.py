"""PopArt of `common.normalization.popart`, configured by gin."""

from __future__ import annotations

import gin

from seed_rl.common.normalization import popart

__all__ = ["PopArt"]


@gin.configurable
class PopArt(popart.PopArt):
    """Configured by gin."""
