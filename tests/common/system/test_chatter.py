"""TensorFlow's chatter is filtered; everything else arrives."""

import pytest

from seed_rl.common.system.chatter import is_chatter
from tests.helpers import PROGRAMS, run_python

CHATTER = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
    "I0000 00:00:1795312722.694208    3394 port.cc:153] oneDNN custom operations are on. You may",
    "W0000 00:00:1795312722.694208    3394 gpu_device.cc:2342] Cannot dlopen some GPU libraries.",
    "E0000 00:00:1795312727.757586    3394 cuda_platform.cc:52] failed call to cuInit: INTERNAL",
    "E0000 00:00:1795312727.757586    3394 cuda_dnn.cc:8579] Unable to register cuDNN factory",
    "2026-01-02 03:04:05.678901: I tensorflow/core/util/port.cc:153] oneDNN custom operations",
    "2026-01-02 03:04:05.678901: E external/local_xla/cuda_fft.cc:467] Unable to register cuFFT",
    "2026-01-02 03:04:05.678901: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2343] Cannot",
    "W0000 00:00:1735689845.1 10 computation_placer.cc:177] computation placer already registered.",
    "To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow",
]
WORTH_READING = [
    "error: there is no game 'Pnog'",
    "I0102 03:04:05.678901 139872 learner.py:260] Serving inference at localhost:8686.",
    "W0102 03:04:05.678901 139872 checkpoints.py:160] Saving a checkpoint failed",
    "E0000 00:00:1795312727.757586    3394 gpu_allocator.cc:52] out of memory",
    "F0000 00:00:1795312727.757586    3394 cpu_feature_guard.cc:33] compiled to use AVX",
    "RuntimeError: the search for cuInit failed",
    "Segmentation fault",
]


def test_what_is_chatter():
    assert [line for line in CHATTER if not is_chatter(line)] == []
    assert [line for line in WORTH_READING if is_chatter(line)] == []


@pytest.mark.parametrize("end", ["abort", "return"])
def test_the_rest_arrives_in_order_also_from_a_crash(end):
    """Guards TensorFlow's last message before it ends a program."""
    lines = [line for pair in zip(CHATTER, WORTH_READING, strict=False) for line in pair]
    result = run_python(PROGRAMS / "chatter_program.py", "\n".join([*lines, ""]), end)
    assert (result.returncode == 0) == (end == "return")
    expected = WORTH_READING + (["afterwards"] if end == "return" else [])
    assert result.stderr.splitlines() == expected


def test_tensorflow_is_loaded_in_silence():
    """Guards the patterns against what the installed TensorFlow really prints."""
    program = """
from seed_rl.common.system import chatter
with chatter.left_out():
    import tensorflow as tf
    tf.config.list_physical_devices()
print(float(tf.ones([])))
"""
    result = run_python("-c", program)
    assert (result.stdout, result.stderr) == ("1.0\n", "")
