"""Whether XLA may compile a training step, and what it says if it cannot."""

from __future__ import annotations

import itertools
import os
import re
from typing import Any

import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.learner.algorithm import Algorithm

_CHANGED_BY_XLA = {
    # XLA compiles these to nothing.
    *("Assert", "CheckNumerics", "CheckNumericsV2"),
    # XLA pads results whose size depends on values: with TensorFlow 2.21 their last element, or a
    # cumulative sum of them, is wrong. (`tf.boolean_mask` and `tf.where(condition)` are "Where".)
    *("Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "DynamicPartition"),
    # XLA ignores the seed: the same numbers in each process (see `random_numbers`, which uses
    # "RandomUniformInt").
    *("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "ParameterizedTruncatedNormal"),
    *("Multinomial", "RandomShuffle"),
}
"""Ops that XLA compiles to something that behaves differently."""


def compiles(jit: str, algorithm: Algorithm, strategy: tf.distribute.Strategy) -> bool:
    """Whether XLA should compile the training step."""
    several = strategy.num_replicas_in_sync > 1
    if jit == "true" and several:
        raise UserError("--jit=true needs one training device and one learner. Leave it out.")
    if jit != "auto":
        return jit == "true"
    kind = device_type(strategy)
    return bool(kind) and algorithm.jit_pays(kind)


def device_type(strategy: tf.distribute.Strategy) -> str:
    """The type of the one device that trains: CPU, GPU or TPU; empty if there are several."""
    if not isinstance(strategy, tf.distribute.OneDeviceStrategy):
        return ""
    name: str = tf.DeviceSpec.from_string(strategy.extended.worker_devices[0]).device_type
    return name


def changed_by_xla(function: Any, *args: Any) -> set[str]:
    """The ops in a tf.function, and in the functions that it calls, that XLA changes."""
    graph = function.get_concrete_function(*args).graph.as_graph_def()
    nodes = itertools.chain(graph.node, *(called.node_def for called in graph.library.function))
    return {node.op for node in nodes if node.op in _CHANGED_BY_XLA or _grows(node)}


def _grows(node: Any) -> bool:
    """Whether a node may lengthen a list (`tf.TensorArray`), which XLA does not do."""
    return node.op == "TensorListSetItem" and node.attr["resize_if_index_out_of_bounds"].b


def without_triton() -> None:
    """Keeps XLA from generating matrix products with Triton; XLA reads this when it first compiles.

    Triton of TensorFlow 2.21 fails for a dense layer on the features of a convolution in bfloat16
    ("Failed to compute symbolic tile"). cuBLAS does the work instead.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if not flags or flags.startswith("-"):  # Otherwise it names a file.
        os.environ["XLA_FLAGS"] = f"--xla_gpu_enable_triton_gemm=false {flags}"  # The last counts.


def refusal(message: str) -> str:
    """What XLA cannot compile, in one line of TensorFlow's message."""
    found = re.search("Detected unsupported operations.*", message)
    node = re.search(r"Detected at (node \S+)", message)
    reason = found[0] if found else f"XLA cannot compile {node[1] if node else 'them'}"
    return re.sub(r"\s*{{.*?}}", "", reason)


def first_line(message: str) -> str:
    """What went wrong: TensorFlow's message without the places in the graph."""
    places = ("Graph execution error", "Detected at", " ")
    lines = [line for line in message.splitlines() if line and not line.startswith(places)]
    return lines[0][:200] if lines else message
