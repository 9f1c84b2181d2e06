"""What an environment costs: time, memory, bytes on the wire (no TensorFlow here)."""

from __future__ import annotations

import dataclasses
import gc
import os
import pathlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from seed_rl.check_env.findings import Findings
from seed_rl.common import nest
from seed_rl.common.acting import spaces

_WINDOWS = 5
_LEAST_LEAK = 1 << 20
"""Bytes; the allocator's own growth within one or two windows is smaller."""
_CALL_BYTES = 30
"""Bytes of a step besides observation and action: ids, rewards, done, abandoned, step."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What was measured.

    Attributes:
      steps_per_s: environment steps per second of one process.
      reset_s: mean seconds of a reset; None if there was none.
      reset_share: share of the time that resets took.
      cores: mean number of cores in use.
      growth: bytes of resident memory per step, after the first fifth of the steps.
      leaks: whether the growth is steady and large enough to be a leak.
      open_files: increase in the number of open files and sockets.
    """

    steps_per_s: float
    reset_s: float | None
    reset_share: float
    cores: float
    growth: float
    leaks: bool
    open_files: int


class Clock:
    """Counts steps, and the time of resets within them."""

    def __init__(self) -> None:
        self.steps = 0
        self.resets = 0
        self.reset_s = 0.0

    def reset(self, call: Callable[[], Any]) -> None:
        """Times a reset."""
        begin = time.perf_counter()
        call()
        self.reset_s += time.perf_counter() - begin
        self.resets += 1


def measure(step: Callable[[Clock], None], seconds: float) -> Cost:
    """Calls `step` for this long.

    Args:
      step: takes one step or a few, resets where episodes end, and counts both.
      seconds: how long to call it.
    """
    clock = Clock()
    memory = []
    files = 0
    began, cpu = 0.0, 0.0
    for window in range(_WINDOWS + 1):
        end = time.perf_counter() + seconds / (_WINDOWS + 1)
        while True:
            step(clock)
            if time.perf_counter() >= end:
                break
        gc.collect()
        memory.append((clock.steps, _resident_bytes()))
        if window == 0:  # Caches fill.
            files = _open_files()
            clock.reset_s, clock.resets = 0.0, 0
            began, cpu = time.perf_counter(), time.process_time()
    wall = time.perf_counter() - began
    grown = np.diff([resident for _, resident in memory])
    steps = memory[-1][0] - memory[0][0]
    total = int(grown.sum())
    return Cost(
        steps_per_s=steps / wall,
        reset_s=clock.reset_s / clock.resets if clock.resets else None,
        reset_share=clock.reset_s / wall,
        cores=(time.process_time() - cpu) / wall,
        growth=total / max(steps, 1),
        leaks=total > _LEAST_LEAK and int((grown > total / 20).sum()) >= _WINDOWS - 1,
        open_files=_open_files() - files,
    )


def bytes_per_step(observation_space: Any, action_space: Any) -> int:
    """Bytes that one step of one environment sends and receives.

    Args:
      observation_space: as agents see it.
      action_space: as agents see it.
    """
    total = _CALL_BYTES
    for space in (observation_space, action_space):
        for spec in nest.flatten(spaces.specs(space)):
            total += int(np.prod(spec.shape)) * spec.dtype.itemsize
    return total


def judge(cost: Cost, findings: Findings) -> None:
    """Adds problems with the cost to the findings."""
    if cost.leaks:
        hours = 1e6 / cost.steps_per_s / 3600
        findings.must(
            "leak",
            f"Memory grows by {cost.growth:,.0f} bytes per step.",
            f"{cost.growth / 1e3:,.1f} GB after a million steps ({hours:,.1f} h) of each actor, "
            "which the kernel then kills.",
            "Look for lists that only grow (histories, logs, render frames), and for objects of "
            "libraries that need closing.",
        )
    if cost.open_files > 2:
        findings.must(
            "files",
            f"{cost.open_files} more files or sockets are open than at the beginning.",
            "After about a thousand, opening fails, and the actor exits.",
            "Close what reset() opens, or open it once.",
        )
    if cost.reset_s is not None and cost.reset_share > 0.5:
        findings.should(
            "slow_reset",
            f"Resets take {cost.reset_share:.0%} of the time, {cost.reset_s * 1e3:,.1f} ms each.",
            "Actors step less than half as often as they could; the others of a batch wait.",
            "Load and build once, in the constructor; reset only the state. Episodes with random "
            "actions may also be shorter than a trained agent's.",
        )
    if cost.cores > 1.5:
        findings.should(
            "threads",
            f"The environment keeps {cost.cores:.1f} cores busy.",
            "Actors are processes, about one per core: their threads slow each other down.",
            "Limit it to one thread, e.g. OMP_NUM_THREADS=1, torch.set_num_threads(1), "
            "cv2.setNumThreads(0).",
        )


def _resident_bytes() -> int:
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
