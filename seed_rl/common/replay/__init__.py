"""Replay of unrolls: prioritized or uniform, compressed, rate-limited.

No module of this package imports TensorFlow.
"""

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.replay.checkpoint import (
    ReplayCheckpointError,
    ReplayFiles,
    load_replay,
    save_replay,
)
from seed_rl.common.replay.hindsight import Hindsight
from seed_rl.common.replay.native import DamagedError
from seed_rl.common.replay.rate_limiter import RateLimiter, ReplayClosed
from seed_rl.common.replay.replay import PrioritizedReplay, ReplaySample, ReplayStats
from seed_rl.common.replay.specs import FieldSpec, unroll_specs

__all__ = [
    "DamagedError",
    "FieldSpec",
    "Hindsight",
    "PrioritizedReplay",
    "RateLimiter",
    "ReplayCheckpointError",
    "ReplayClosed",
    "ReplayConfig",
    "ReplayFiles",
    "ReplaySample",
    "ReplayStats",
    "load_replay",
    "save_replay",
    "unroll_specs",
]
