"""NVIDIA's GPUs, as the driver sees them, without TensorFlow."""

from __future__ import annotations

import os
import shutil
import subprocess


def machine_has_gpu() -> bool:
    """Whether the driver lists a GPU that this process should see."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return not listed.returncode
