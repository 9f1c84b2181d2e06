"""The variables of a network.

A network is a `tf.Module` or a Keras layer, often with the other kind inside. Keras 3 layers and
variables are not `tf.Module`s and `tf.Variable`s, so `network.trainable_variables` silently omits
those of the other kind; the functions here find both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import tensorflow as tf


def variables(module: Any) -> list[tf.Variable]:
    """Every variable of a network (or layer, or nest of them), once.

    Ordered by attribute name, so that two networks of the same architecture agree in the order.
    """
    return [variable for variable, _ in _found(module)]


def trainable_variables(module: Any) -> list[tf.Variable]:
    """Those of `variables` that are trainable."""
    return [variable for variable, trained in _found(module) if trained]


def _found(module: Any) -> Collection[tuple[tf.Variable, bool]]:
    found = dict[int, tuple[tf.Variable, bool]]()
    for variable, trained in _walk(module, set()):
        found.setdefault(id(variable), (variable, trained))
    return found.values()


def _walk(value: Any, visited: set[int]) -> Iterator[tuple[tf.Variable, bool]]:
    """Variables, and whether they are trained, perhaps several times."""
    if isinstance(value, tf.keras.Variable):
        # The TensorFlow variable within: optimizers, `assign` and checkpoints all take it.
        yield value.value, value.trainable
        return
    if isinstance(value, tf.Variable):
        yield value, value.trainable
        return
    if id(value) in visited or isinstance(value, (str, bytes)):
        return
    visited.add(id(value))
    if isinstance(value, tf.keras.layers.Layer):
        for variable in value.weights:  # Without seeds and metrics.
            yield from _walk(variable, visited)
        # Modules and variables that Keras does not track.
        for variable, trained in _walk(vars(value), visited):
            yield variable, trained and value.trainable
    elif isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _walk(value[key], visited)
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _walk(element, visited)
    elif isinstance(value, tf.Module):
        attributes = vars(value)
        for name in sorted(attributes):
            # The ignored attributes are TensorFlow's own, and refer to the same variables again.
            if name not in value._TF_MODULE_IGNORED_PROPERTIES:
                yield from _walk(attributes[name], visited)
