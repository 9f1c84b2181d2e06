"""Replay of unrolls: prioritized or uniform, compressed, rate-limited (no TensorFlow)."""

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.replay.checkpoint import (
    ReplayCheckpointError,
    ReplayFiles,
    load_replay,
    save_replay,
)
from seed_rl.common.replay.feed import BatchFeed
from seed_rl.common.replay.native import DamagedError
from seed_rl.common.replay.rate_limiter import RateLimiter, ReplayClosed, ReplayTimeout
from seed_rl.common.replay.replay import PrioritizedReplay, ReplaySample, ReplayStats
from seed_rl.common.replay.specs import FieldSpec, unroll_specs
from seed_rl.common.replay.sum_tree import SumTree

__all__ = [
    "BatchFeed",
    "DamagedError",
    "FieldSpec",
    "PrioritizedReplay",
    "RateLimiter",
    "ReplayCheckpointError",
    "ReplayClosed",
    "ReplayConfig",
    "ReplayFiles",
    "ReplaySample",
    "ReplayStats",
    "ReplayTimeout",
    "SumTree",
    "load_replay",
    "save_replay",
    "unroll_specs",
]
