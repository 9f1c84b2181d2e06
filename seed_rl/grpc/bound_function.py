"""A tf.function bound to a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from seed_rl.grpc import structures, wire

_UNBATCHED, _DYNAMIC = -1, 0


class BoundFunction:
    """One function, or several that take turns under one name.

    Attributes:
      name: the name that clients call.
      functions: ConcreteFunctions; must stay alive, or the runtime forgets them.
      arguments: TensorSpecs of the arguments' leaves.
      outputs: TensorSpecs of the outputs' leaves.
      batch: -1 if calls are not batched, 0 for a dynamic leading dimension, otherwise its size.
      options: further options of the native bind op.
    """

    def __init__(self, fn: Callable[..., Any] | Sequence[Callable[..., Any]], **options: Any):
        """Traces the functions.

        Args:
          fn: one or several tf.functions, see `Server.bind`.
          **options: `isolate_errors`, `max_in_flight` and `op_threads` of `Server.bind`.

        Raises:
          ValueError: if `fn` is not a tf.function with an input signature, or an argument or output
            cannot be sent.
        """
        functions = [_concrete(f) for f in (fn if isinstance(fn, Sequence) else [fn])]
        if not functions:
            raise ValueError("No function to bind.")
        self.name: str = (fn[0] if isinstance(fn, Sequence) else fn).__name__
        self.functions = functions
        self.options = options
        first = functions[0]
        args, kwargs = first.structured_input_signature
        if kwargs:
            raise ValueError(f"{self.name} takes keyword arguments, which cannot be sent.")
        self._argument_nest = tuple(args)
        self._output_nest = tf.nest.map_structure(_spec_of, first.structured_outputs)
        self.arguments = _leaves(self._argument_nest)
        self.outputs = _leaves(self._output_nest)
        for spec in (*self.arguments, *self.outputs):
            if not isinstance(spec, tf.TensorSpec) or spec.dtype.name not in wire.DTYPE_NAMES:
                raise ValueError(f"{self.name} takes or returns {spec}, which cannot be sent.")
        for function in functions[1:]:
            if not _same(function, first):
                raise ValueError(f"The functions bound as {self.name} have different signatures.")
        self.batch = _batch_size(self.arguments, self.outputs)

    def to_json(self) -> dict[str, Any]:
        """The function's entry in the server's description."""
        return {
            "name": self.name,
            "batch": None if self.batch == _UNBATCHED else self.batch,
            "arguments": structures.to_json(_to_structure(self._argument_nest)),
            "outputs": structures.to_json(_to_structure(self._output_nest)),
        }


def _concrete(fn: Any) -> Any:
    """The ConcreteFunction of a tf.function."""
    if not hasattr(fn, "get_concrete_function"):
        raise ValueError(f"{fn} is not a tf.function.")
    try:
        concrete = fn.get_concrete_function()
    except TypeError as error:
        if getattr(fn, "input_signature", None) is not None:
            raise
        raise ValueError(f"{fn.__name__} needs an input_signature.") from error
    attributes = concrete.function_def.attr
    if "_XlaMustCompile" not in attributes or not attributes["_XlaMustCompile"].b:
        return concrete
    # XLA compiles such a function where it is called, so wrap it in a caller.
    specs, _ = concrete.structured_input_signature
    caller = tf.function(lambda *args: fn(*args), input_signature=specs, autograph=False)
    return caller.get_concrete_function()


def _spec_of(output: Any) -> Any:
    return tf.TensorSpec(output.shape, output.dtype) if tf.is_tensor(output) else output


def _leaves(structure: Any) -> list[Any]:
    return [leaf for leaf in tf.nest.flatten(structure) if leaf is not None]


def _same(function: Any, other: Any) -> bool:
    def signature(f: Any) -> list[Any]:
        specs = [*_leaves(f.structured_input_signature), *_leaves(f.structured_outputs)]
        return [(spec.dtype, str(spec.shape)) for spec in specs]

    # Compare shapes as text: unknown dimensions are never equal to each other.
    return signature(function) == signature(other)


def _batch_size(arguments: list[tf.TensorSpec], outputs: list[tf.TensorSpec]) -> int:
    """N, _DYNAMIC or _UNBATCHED, as `Server` explains."""
    if not arguments or any(not spec.shape.rank for spec in arguments):
        return _UNBATCHED
    sizes = {spec.shape[0] for spec in arguments}
    if len(sizes) != 1 or not all(spec.shape[1:].is_fully_defined() for spec in arguments):
        return _UNBATCHED
    (size,) = sizes
    for spec in outputs:
        if spec.shape.rank is None:
            continue  # Checked at run time.
        if spec.shape.rank == 0 or spec.shape[0] not in (None, size):
            return _UNBATCHED
    return _DYNAMIC if size is None else (size or _UNBATCHED)


def _to_structure(nest: Any) -> structures.Structure:
    def leaf(spec: tf.TensorSpec | None) -> structures.TensorSpec | None:
        if spec is None:
            return None
        shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
        return structures.TensorSpec(spec.dtype.name, shape, getattr(spec, "name", None) or "")

    return tf.nest.map_structure(leaf, nest)
