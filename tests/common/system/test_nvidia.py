"""Which GPUs a process may use, by the driver's list and its environment."""

from __future__ import annotations

import os
import pathlib

import pytest

from seed_rl.common.system import nvidia
from tests.helpers import stand_in

GPUS = r"""
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-11-aa)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-22-bb)
"""
PARTS = r"""
GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-11-aa)
  MIG 3g.20gb     Device  0: (UUID: MIG-33-cc)
  MIG 3g.20gb     Device  1: (UUID: MIG-44-dd)
"""


@pytest.mark.parametrize(
    ("listed", "code", "visible", "expected"),
    [
        (GPUS, 0, None, ["GPU-11-aa", "GPU-22-bb"]),
        (PARTS, 0, None, ["MIG-33-cc", "MIG-44-dd"]),
        (GPUS, 0, "1, 0", ["1", "0"]),
        (GPUS, 0, "0,-1,1", ["0"]),
        (GPUS, 0, "0,9,1", ["0"]),
        (GPUS, 0, "GPU-22-bb", ["GPU-22-bb"]),
        (GPUS, 0, "", []),
        (GPUS, 9, None, []),
        ("No devices were found", 0, None, []),
        ("", 9, "0,1", []),
    ],
)
def test_visible_gpus(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    listed: str,
    code: int,
    visible: str | None,
    expected: list[str],
) -> None:
    """Guards the names that CUDA takes, and those that hide GPUs."""
    stand_in(tmp_path / "nvidia-smi", f"cat <<'E'\n{listed}\nE\nexit {code}")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv(nvidia.VISIBLE, raising=False)
    if visible is not None:
        monkeypatch.setenv(nvidia.VISIBLE, visible)
    assert nvidia.visible_gpus() == expected


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nvidia.visible_gpus() == []
