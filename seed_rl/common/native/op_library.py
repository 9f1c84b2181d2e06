"""Loads the libraries of TensorFlow ops."""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.native import native_library


@functools.cache
def load_ops(name: str) -> Any:
    """Loads a library of TensorFlow ops (once) and returns the module of its op functions.

    Raises:
      UserError: the library is missing, was built against another TensorFlow, or does not load.
    """
    file = native_library.path(name)
    native_library.check_version(tf.__version__)
    try:
        return tf.load_op_library(str(file))
    except (tf.errors.OpError, OSError) as error:
        raise UserError(
            f"The native library {file} does not load: {error}\n{native_library.how_to_build()}"
        ) from error
