"""The memory of a replay, reported before it is allocated."""

import numpy as np
import pytest

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.replay import memory
from seed_rl.common.replay.replay import PrioritizedReplay
from seed_rl.common.replay.specs import FieldSpec, Layout

ATARI = {
    "frames": FieldSpec((121, 84, 84, 1), np.uint8),
    "state": FieldSpec((2, 512), np.float32, time=False),
}


def test_too_large_a_replay_is_refused_with_the_arithmetic() -> None:
    """Guards the machine's memory; the message shows every number of the sum."""
    config = ReplayConfig(replay_memory_gb=2.0)
    with pytest.raises(UserError) as caught:
        PrioritizedReplay(config, ATARI)
    message = str(caught.value)
    for part in (
        "100,000 unrolls",
        "853,776 bytes / 30 (assumed compression) x 100,000 unrolls = 2.85 GB",
        "4,096 bytes x 100,000 unrolls = 0.41 GB",
        "may use 2 GB (--replay_memory_gb)",
    ):
        assert part in message
    fitting = int(message.split("--replay_buffer_size to ")[1].split(" or")[0].replace(",", ""))
    memory.limit(
        ReplayConfig(replay_memory_gb=2.0, replay_buffer_size=fitting - 100), Layout(ATARI)
    )


def test_without_compression_frames_count_in_full() -> None:
    """Guards the projection against assuming what the options rule out."""
    config = ReplayConfig(replay_compression_level=0)
    assert memory.project(config, Layout(ATARI)).total_bytes > 85e9


def test_projection_meets_the_bytes_used() -> None:
    """Guards the arithmetic: a full replay of noise uses what was projected."""
    layout = Layout(FieldSpec((30, 40), np.float32))
    config = ReplayConfig(replay_buffer_size=3000, replay_buffer_min_size=1, replay_ratio=0)
    projected = memory.project(config, layout).total_bytes
    replay = PrioritizedReplay(config, layout.specs)
    noise = np.random.default_rng(0).normal(size=(30, 3000, 40)).astype(np.float32)
    replay.insert(noise)
    assert replay.stats().bytes_used == pytest.approx(projected, rel=0.02)
