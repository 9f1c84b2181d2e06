"""The memory of a replay, told before it is taken."""

from pathlib import Path

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
    """Guards the machine, and the user's understanding: every number of the sum is shown."""
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


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_available_memory_of_the_machine(tmp_path: Path) -> None:
    """Guards the reading of /proc/meminfo where there is no control group."""
    root = write(tmp_path, {"proc/meminfo": "MemTotal: 900 kB\nMemAvailable:    500 kB\n"})
    assert memory.available_bytes(root) == 500 * 1024


def test_available_memory_of_a_container(tmp_path: Path) -> None:
    """Guards containers: the limit of the control group counts, less what is used in earnest."""
    meminfo = {"proc/meminfo": "MemAvailable: 500000 kB\n"}
    version_2 = {
        "proc/self/cgroup": "0::/job\n",
        "sys/fs/cgroup/memory.max": "max\n",
        "sys/fs/cgroup/job/memory.max": "1000000\n",
        "sys/fs/cgroup/job/memory.current": "700000\n",
        "sys/fs/cgroup/job/memory.stat": "anon 1\ninactive_file 200000\n",
    }
    assert memory.available_bytes(write(tmp_path / "2", {**meminfo, **version_2})) == 500_000
    version_1 = {
        "proc/self/cgroup": "5:cpu:/x\n4:memory:/job\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "5\n",
        "sys/fs/cgroup/memory/memory.stat": "\n",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "3000\n",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "1000\n",
        "sys/fs/cgroup/memory/job/memory.stat": "inactive_file 10\n",
    }
    assert memory.available_bytes(write(tmp_path / "1", {**meminfo, **version_1})) == 2010


def test_available_memory_here_is_plausible() -> None:
    """Guards the real files of this machine."""
    assert 100e6 < memory.available_bytes() < 1e14
