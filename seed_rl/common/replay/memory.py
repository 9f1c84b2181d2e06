"""Checks that a full replay will fit in memory, before anything is allocated."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.replay.specs import FieldSpec, Layout

_AVAILABLE_SHARE = 0.8
# Fields of at least this size are compressed on their own; smaller ones are assumed not to shrink.
_LARGE_FIELD = 4096
_MAX_LINES = 5


@dataclasses.dataclass(frozen=True)
class Projection:
    """Memory that a full replay is expected to use.

    Attributes:
      lines: the arithmetic as text, one summand per line.
      unroll_bytes: bytes per unroll, index included.
      total_bytes: bytes of the whole replay.
    """

    lines: tuple[str, ...]
    unroll_bytes: float
    total_bytes: int


def project(config: ReplayConfig, layout: Layout) -> Projection:
    """Projects the memory of a full replay."""
    capacity = config.replay_buffer_size
    summands = []
    for name, field in zip(layout.names, layout.fields, strict=True):
        ratio = _assumed_ratio(config, field)
        shape = ", ".join(map(str, field.shape))
        divided = f" / {ratio:g} (assumed compression)" if ratio != 1 else ""
        text = f"{name or 'value'} {np.dtype(field.dtype).name}[{shape}]: {field.nbytes:,} bytes"
        summands.append((field.nbytes / ratio, text + divided))
    summands.sort(reverse=True)
    lines = [
        f"{text} x {capacity:,} unrolls = {_gb(each * capacity)}"
        for each, text in summands[:_MAX_LINES]
    ]
    if len(summands) > _MAX_LINES:
        rest = sum(each for each, _ in summands[_MAX_LINES:])
        lines.append(f"{len(summands) - _MAX_LINES} smaller fields = {_gb(rest * capacity)}")
    unroll_bytes = sum(each for each, _ in summands)
    # Priority, insertion time, end of record, and a tree over the next power of two.
    tree = 2 * 8 * 2 ** math.ceil(math.log2(capacity)) if capacity > 1 else 16
    index = 24 * capacity + tree
    lines.append(f"priorities and index = {_gb(index)}")
    return Projection(
        tuple(lines), unroll_bytes + index / capacity, int(unroll_bytes * capacity) + index
    )


def limit(config: ReplayConfig, layout: Layout) -> int:
    """The bytes that the replay may use.

    Raises:
      UserError: a full replay is expected to need more; the message shows the arithmetic.
    """
    available = available_bytes()
    if config.replay_memory_gb is not None:
        allowed = int(config.replay_memory_gb * 1e9)
        source = "--replay_memory_gb"
    else:
        allowed = int(_AVAILABLE_SHARE * available)
        source = f"{_AVAILABLE_SHARE:.0%} of the {_gb(available)} of available memory"
    projection = project(config, layout)
    if projection.total_bytes <= allowed:
        return allowed
    arithmetic = "\n".join(f"  {line}" for line in projection.lines)
    fitting = int(allowed / projection.unroll_bytes)
    raise UserError(
        f"A replay of {config.replay_buffer_size:,} unrolls is expected to need "
        f"{_gb(projection.total_bytes)}, but may use {_gb(allowed)} ({source}):\n{arithmetic}\n"
        f"Lower --replay_buffer_size to {fitting:,} or less, raise --replay_memory_gb if the "
        "machine has more, or raise --replay_assumed_compression if the frames compress better."
    )


def available_bytes(root: Path = Path("/")) -> int:
    """Memory that this process can still allocate, within its machine and its control group.

    Args:
      root: root of the file system; tests replace it.
    """
    available = [_meminfo(root / "proc/meminfo")]
    for folder, maximum, current in (
        (root / "sys/fs/cgroup", "memory.max", "memory.current"),
        (root / "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for group in {folder, folder / _own_group(root / "proc/self/cgroup")}:
            if (free := _free_of_group(group, maximum, current)) is not None:
                available.append(free)
    return max(0, min(available))


def _assumed_ratio(config: ReplayConfig, field: FieldSpec) -> float:
    dtype = np.dtype(field.dtype)
    image = dtype.itemsize == 1 and field.nbytes >= _LARGE_FIELD
    return config.replay_assumed_compression if image and config.replay_compression_level else 1.0


def _meminfo(path: Path) -> int:
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{path} has no line MemAvailable.")


def _own_group(path: Path) -> str:
    """The control group of this process, relative to the root group."""
    try:
        for line in path.read_text().splitlines():
            number, controllers, group = line.split(":", 2)
            if number == "0" or "memory" in controllers.split(","):
                return group.lstrip("/")
    except (OSError, ValueError):
        pass
    return ""


def _free_of_group(group: Path, maximum: str, current: str) -> int | None:
    try:
        allowed = int((group / maximum).read_text())
        used = int((group / current).read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # The kernel drops cached files before an allocation fails.
        return allowed - used + int(stat.get("inactive_file", 0))
    except (OSError, ValueError):  # No such group, or "max": no limit.
        return None


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g} GB"
