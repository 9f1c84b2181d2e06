"""What Linux says about the processor."""

import pytest

from seed_rl.common.system import processor

ZEN4 = """processor\t: 0
model name\t: AMD EPYC 9R14
flags\t\t: fpu avx2 avx512f avx512_bf16

processor\t: 1
model name\t: another
flags\t\t: fpu
"""


@pytest.mark.parametrize(
    ("cpuinfo", "model", "bfloat16"),
    [
        (ZEN4, "AMD EPYC 9R14", True),
        (ZEN4.replace("avx512_bf16", "amx_tile amx_bf16"), "AMD EPYC 9R14", True),
        (ZEN4.replace(" avx512_bf16", ""), "AMD EPYC 9R14", False),
        ("processor\t: 0\nFeatures\t: fp asimd bf16\n", "aarch64", False),
        (None, "aarch64", False),
    ],
)
def test_cpuinfo(monkeypatch, tmp_path, cpuinfo, model, bfloat16):
    path = tmp_path / "cpuinfo"
    if cpuinfo is not None:
        path.write_text(cpuinfo)
    monkeypatch.setattr(processor, "Path", lambda _: path)
    monkeypatch.setattr(processor.platform, "machine", lambda: "aarch64")
    assert processor.model() == model
    assert processor.multiplies_bfloat16() == bfloat16
