"""Input normalization of `common.normalization.input_normalization`, configured by gin."""

from __future__ import annotations

import gin

from seed_rl.common.normalization import input_normalization

__all__ = ["InputNormalization"]


@gin.configurable
class InputNormalization(input_normalization.InputNormalization):
    """Configured by gin."""
