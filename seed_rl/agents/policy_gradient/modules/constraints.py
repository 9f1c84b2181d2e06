"""Coefficients of `common.learner.coefficients`, configured by gin."""

from __future__ import annotations

import gin

from seed_rl.common.learner import coefficients
from seed_rl.common.learner.coefficients import Coefficient

__all__ = ["Coefficient", "FixedCoefficient", "LagrangeInequalityCoefficient"]


@gin.configurable
class FixedCoefficient(coefficients.FixedCoefficient):
    """Configured by gin."""


@gin.configurable
class LagrangeInequalityCoefficient(coefficients.LagrangeInequalityCoefficient):
    """Configured by gin."""
