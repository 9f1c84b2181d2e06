"""Checks that a full replay will fit in memory, before anything is allocated."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from seed_rl.common.config.replay_config import ReplayConfig
from seed_rl.common.errors import UserError
from seed_rl.common.replay.specs import FieldSpec, Layout
from seed_rl.common.system.memory import available_bytes

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


def _assumed_ratio(config: ReplayConfig, field: FieldSpec) -> float:
    dtype = np.dtype(field.dtype)
    image = dtype.itemsize == 1 and field.nbytes >= _LARGE_FIELD
    return config.replay_assumed_compression if image and config.replay_compression_level else 1.0


def _gb(count: float) -> str:
    return f"{count / 1e9:.3g} GB"
