"""Public names of existing SEED code, from `normalization.normalizer`."""

from seed_rl.common.normalization.normalizer import NormalizeObservationsWrapper, Normalizer

__all__ = ["NormalizeObservationsWrapper", "Normalizer"]
