"""NVIDIA's GPUs, as the driver sees them, without TensorFlow."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""The environment variable that names the GPUs of a process."""


def visible_gpus() -> list[str]:
    """The GPUs that this process should see, each as in `CUDA_VISIBLE_DEVICES`."""
    present = _present()
    if not present or VISIBLE not in os.environ:
        return present
    numbers = {str(number) for number in range(len(present))}
    named = (name.strip() for name in os.environ[VISIBLE].split(","))
    # As CUDA does, which ignores everything after the first invalid one.
    return list(itertools.takewhile(lambda name: name in numbers or name[:1].isalpha(), named))


def _present() -> list[str]:
    """Identifiers of the GPUs, or of their parts (MIG), that the driver lists."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    found = re.findall(rb"UUID: ((GPU|MIG)-[^)\s]+)", listed.stdout)
    kind = b"MIG" if any(kind == b"MIG" for _, kind in found) else b"GPU"
    return [name.decode() for name, its_kind in found if its_kind == kind]
