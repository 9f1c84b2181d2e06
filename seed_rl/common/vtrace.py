"""Facade: names of the original, from `returns.vtrace`."""

from seed_rl.common.returns.vtrace import VTraceReturns, from_importance_weights

__all__ = ["VTraceReturns", "from_importance_weights"]
