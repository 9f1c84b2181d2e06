"""Advantage estimators of `common.returns.advantages`, configured by gin.

The functions are not registered: `vtrace` in gin is a policy loss.
"""

from __future__ import annotations

import gin

from seed_rl.common.returns import advantages
from seed_rl.common.returns.advantages import AdvantageEstimator, gae, vtrace

__all__ = ["GAE", "AdvantageEstimator", "NStep", "VTrace", "gae", "vtrace"]


@gin.configurable
class GAE(advantages.GAE):
    """Configured by gin."""


@gin.configurable
class VTrace(advantages.VTrace):
    """Configured by gin."""


@gin.configurable
class NStep(advantages.NStep):
    """Configured by gin."""
