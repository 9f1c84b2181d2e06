"""The processor that this process runs on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def model() -> str:
    """The model's name as Linux gives it; the architecture where it gives none."""
    return _cpuinfo("model name") or platform.machine()


def multiplies_bfloat16() -> bool:
    """Whether the processor has bfloat16 instructions; without them, float32 is faster."""
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(_cpuinfo("flags").split())


def _cpuinfo(field: str) -> str:
    """What Linux says of the first core; empty where it says nothing."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(field)), "")
