"""Restores variables, or reports which of them does not fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from seed_rl.common.checkpoints import manifest

_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OPTIMIZER = "optimizer"


class MisfitError(Exception):
    """The variables differ from those in the checkpoint; the message names one that does."""


def read(prefix: str, root: tf.train.Checkpoint, partly: bool = False) -> None:
    """Restores the variables of `root`, all of which must be in the checkpoint.

    Args:
      prefix: path prefix of TensorFlow's checkpoint.
      root: its variables exist already.
      partly: whether the checkpoint may contain further variables.

    Raises:
      MisfitError: it does not fit. If a shape differs, nothing is restored.
      UserError: it cannot be read.
    """
    try:
        for path, saved, here in _compare(prefix, root):
            if saved is not None and here is not None and not here.is_compatible_with(saved):
                raise MisfitError(
                    f"{path} has shape {saved} in the checkpoint, but {here.as_list()} here"
                )
        status = root.read(prefix)
        try:
            status.assert_existing_objects_matched() if partly else status.assert_consumed()
        except AssertionError as error:
            raise MisfitError(_unmatched(prefix, root) or first_line(error)) from error
        finally:
            # Otherwise TensorFlow logs a line for every variable that was not restored.
            status.expect_partial()
    except (ValueError, OSError, tf.errors.OpError) as error:
        manifest.raise_if_unreadable(Path(prefix), error)
        raise MisfitError(first_line(error)) from error


def first_line(error: BaseException) -> str:
    """The error in one line, shortened: TensorFlow puts long paths first and the reason last."""
    lines = str(error).strip().splitlines() or [""]
    line = f"{type(error).__name__}: {lines[0]}"
    return line if len(line) <= 300 else f"{line[:80]} ... {line[-200:]}"


def _unmatched(prefix: str, root: tf.train.Checkpoint) -> str | None:
    for path, saved, here in _compare(prefix, root):
        if saved is None:
            return f"{path} is not in the checkpoint"
        if here is None:
            return f"{path} is in the checkpoint, but not here"
    return None


_Found = tuple[str, list[int] | None, tf.TensorShape | None]


def _compare(prefix: str, root: tf.train.Checkpoint) -> Iterator[_Found]:
    """Yields each variable's path, shape in the checkpoint and shape here; None where missing.

    Like TensorFlow, matches variables by attribute names.
    """
    reader = tf.train.load_checkpoint(prefix)
    shapes = reader.get_variable_to_shape_map()
    if _GRAPH not in shapes:
        return  # Not written by `tf.train.Checkpoint`.
    nodes = TrackableObjectGraph.FromString(reader.get_tensor(_GRAPH)).nodes
    view = tf.train.TrackableView(root)
    seen: dict[tuple[int | None, int], Any] = {}  # Holds the objects, so that ids stay unique.

    def visit(path: str, node: int | None, found: Any) -> Iterator[_Found]:
        if (node, id(found)) in seen:
            return
        seen[node, id(found)] = found
        keys = [a.checkpoint_key for a in nodes[node].attributes] if node is not None else []
        saved = [shapes[key] for key in keys if key in shapes]
        here = _shape(found)
        if saved or here is not None:
            yield path, saved[0] if saved else None, here
        there = {c.local_name: c.node_id for c in nodes[node].children} if node is not None else {}
        children = view.children(found) if found is not None else {}
        # Optimizers last: they list the network's variables too, under worse names.
        for name in sorted(there.keys() | children.keys(), key=lambda n: (n == _OPTIMIZER, n)):
            yield from visit(f"{path}/{name}".strip("/"), there.get(name), children.get(name))

    yield from visit("", 0, root)


def _shape(found: Any) -> tf.TensorShape | None:
    """The shape of a TensorFlow or Keras variable; None for anything else."""
    if isinstance(found, (tf.Variable, tf.keras.Variable)):
        return tf.TensorShape(found.shape)
    return None
