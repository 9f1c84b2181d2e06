"""Facade: names of the original, from `normalization.normalizer`."""

from seed_rl.common.normalization.normalizer import NormalizeObservationsWrapper, Normalizer

__all__ = ["NormalizeObservationsWrapper", "Normalizer"]
