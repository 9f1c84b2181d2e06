"""Names of TensorFlow and Keras in gin configs: `@tf.keras.optimizers.Adam`, `@tf.nn.tanh`, ...

Importing this module registers the names that configs of this agent use, and makes gin's own
`gin.tf.external_configurables` importable, for existing programs and configs.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterable
from typing import Any

import gin
import tensorflow as tf


def _without_estimator() -> types.ModuleType:
    """The package `gin.tf` without its `__init__`, which needs the removed `tf.estimator`."""
    package = types.ModuleType("gin.tf")
    package.__path__ = [os.path.join(folder, "tf") for folder in gin.__path__]
    return package


def _public(module: Any, base: type) -> list[type]:
    """The classes of a module that derive from `base`, each once: under its own name."""
    return [
        value
        for name, value in sorted(vars(module).items())
        if isinstance(value, type) and issubclass(value, base) and value is not base
        if name == value.__name__
    ]


def _register(module: str, values: Iterable[Any]) -> None:
    for value in values:
        gin.external_configurable(value, module=module)


def register() -> None:
    """Registers the names; calling it again changes nothing."""
    optimizers, initializers = tf.keras.optimizers, tf.keras.initializers
    schedules = optimizers.schedules
    _register("tf.keras.optimizers", _public(optimizers, optimizers.Optimizer))
    _register("tf.keras.optimizers.schedules", _public(schedules, schedules.LearningRateSchedule))
    _register("tf.keras.initializers", _public(initializers, initializers.Initializer))
    _register("tf.keras.layers", [tf.keras.layers.LayerNormalization])
    # Not `tf.nn.swish`, which would make `@swish` (of `continuous_control_agent`) ambiguous.
    nn = ("elu", "gelu", "leaky_relu", "relu", "relu6", "selu", "sigmoid", "silu", "softplus")
    for name in (*nn, "softsign", "tanh"):
        gin.external_configurable(getattr(tf.nn, name), name=name, module="tf.nn")
    for name in ("exp", "sigmoid", "tanh"):
        gin.external_configurable(getattr(tf, name), name=name, module="tf")


register()
if "gin.tf" not in sys.modules:
    sys.modules["gin.tf"] = gin.tf = _without_estimator()
