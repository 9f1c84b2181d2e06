"""The type of a network's arithmetic."""

from __future__ import annotations

import functools
import os

import tensorflow as tf

from seed_rl.common.system import processor

_AMPERE = (8, 0)
"""Compute capability of the first NVIDIA GPUs with instructions for bfloat16."""


def resolve(dtype: tf.DType | str) -> tf.DType:
    """The type that an option names.

    Args:
      dtype: "auto" is bfloat16 if the accelerators that TensorFlow sees, or without any the
        processor, have instructions for it, and else float32.
    """
    return _native_dtype() if dtype == "auto" else tf.as_dtype(dtype)


@functools.cache
def _native_dtype() -> tf.DType:
    capabilities = [
        tf.config.experimental.get_device_details(gpu).get("compute_capability", (0, 0))
        for gpu in tf.config.get_visible_devices("GPU")
    ]
    if tf.config.list_logical_devices("TPU"):
        native = True
    elif capabilities:
        native = min(capabilities) >= _AMPERE
    else:  # TensorFlow uses the processor's instructions for bfloat16 through oneDNN alone.
        native = processor.multiplies_bfloat16() and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
    return tf.bfloat16 if native else tf.float32
