"""Structures of a function's arguments and outputs: JSON on the wire, nests in the program.

A structure is a nest (tuples, named tuples, lists, dictionaries) whose leaves are `TensorSpec` or
None. The server's named tuples become types with the same name and fields.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import Any

import numpy as np

from seed_rl.common import nest
from seed_rl.grpc import wire
from seed_rl.grpc.errors import WireError

_MAX_DEPTH = 64


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """Type and shape of one argument or output tensor.

    Attributes:
      dtype: name in the wire format, such as "float32" or "string".
      shape: None for a dimension of any size; None instead of a tuple for any rank.
      name: informative; may be empty.
    """

    dtype: str
    shape: tuple[int | None, ...] | None
    name: str = ""

    @functools.cached_property
    def numpy_dtype(self) -> np.dtype[Any]:
        """NumPy type of a matching array."""
        return wire.numpy_dtype(self.dtype)


Structure = Any
"""A nest of `TensorSpec` and None."""


class StructureError(ValueError):
    """A value does not have the expected structure."""


def from_json(tree: Any, depth: int = 0) -> Structure:
    """Parses a structure from a Describe answer.

    Raises:
      WireError: if `tree` is malformed.
    """
    if depth > _MAX_DEPTH:
        raise WireError("A structure is nested too deeply.")
    if not isinstance(tree, dict) or len(tree) != 1:
        raise WireError(f"Not a structure: {str(tree)[:100]}")
    ((kind, content),) = tree.items()
    if kind == "none":
        return None
    if kind == "tensor":
        return _tensor_from_json(content)
    if kind in ("tuple", "list"):
        children = _children_from_json(content, depth)
        return tuple(children) if kind == "tuple" else children
    if kind in ("namedtuple", "dict") and isinstance(content, dict):
        children = _children_from_json(content.get("values"), depth)
        labels = content.get("keys" if kind == "dict" else "fields")
        if not isinstance(labels, list) or len(set(map(str, labels))) != len(children):
            raise WireError(f"A {kind} has {len(children)} values for {labels}.")
        if kind == "dict":
            return dict(zip(labels, children, strict=True))
        return _namedtuple_type(str(content.get("name")), tuple(map(str, labels)))(*children)
    raise WireError(f"Not a structure: {str(tree)[:100]}")


def to_json(structure: Structure) -> Any:
    """The inverse of `from_json`."""
    if structure is None:
        return {"none": True}
    if isinstance(structure, TensorSpec):
        shape = None if structure.shape is None else list(structure.shape)
        return {"tensor": {"dtype": structure.dtype, "shape": shape, "name": structure.name}}
    if isinstance(structure, dict):
        keys = sorted(structure)
        return {"dict": {"keys": keys, "values": [to_json(structure[key]) for key in keys]}}
    values = [to_json(child) for child in structure]
    if nest.is_namedtuple(structure):
        name, fields = type(structure).__name__, list(structure._fields)
        return {"namedtuple": {"name": name, "fields": fields, "values": values}}
    return {"tuple" if isinstance(structure, tuple) else "list": values}


def specs(structure: Structure) -> list[TensorSpec]:
    """The tensor specs of a structure, in wire order."""
    return [leaf for leaf in nest.flatten(structure) if leaf is not None]


def pack(structure: Structure, tensors: list[np.ndarray]) -> Any:
    """Packs the tensors of a frame into `structure`.

    Raises:
      WireError: if their number differs from the structure's.
    """
    if type(structure) is TensorSpec and len(tensors) == 1:
        return tensors[0]
    remaining = iter(tensors)
    leaves = [
        None if leaf is None else next(remaining, _MISSING) for leaf in nest.flatten(structure)
    ]
    if next(remaining, _MISSING) is not _MISSING or any(leaf is _MISSING for leaf in leaves):
        raise WireError(f"The reply has {len(tensors)} tensors, not {len(specs(structure))}.")
    return nest.pack_sequence_as(structure, leaves)


def unpack_arguments(arguments: tuple[Structure, ...], args: tuple[Any, ...]) -> list[Any]:
    """The leaves of a call's arguments, in wire order.

    A list or tuple in place of a tensor is a nest of several arguments, not an array.

    Raises:
      StructureError: their number or structure differs from that of `arguments`.
    """
    leaves: list[Any] = []
    if len(args) == len(arguments):
        for i, (structure, arg) in enumerate(zip(arguments, args, strict=True)):
            unpack(structure, arg, leaves, f"arg[{i}]")
    else:
        _append_all(args, leaves)
    expected = len(specs(arguments))
    if len(leaves) != expected:
        hint = " (a list is a nest of arguments; pass an array)" if _has_list(args) else ""
        raise StructureError(f"Expects {expected} arguments, but {len(leaves)} is provided{hint}")
    return leaves


def unpack(structure: Structure, value: Any, leaves: list[Any], path: str) -> None:
    """Appends the leaves of `value`, which must match `structure`, to `leaves`.

    Tuples, named tuples and lists are interchangeable if their lengths (and the fields of two named
    tuples) agree. A leaf may be anything that `to_array` takes; if it is a nest, all its leaves are
    appended.

    Raises:
      StructureError: gives the path, starting with `path`, at which they differ.
    """
    if type(structure) is TensorSpec:
        if isinstance(value, _NESTS):
            _append_all(value, leaves)
        else:
            leaves.append(value)
    elif isinstance(structure, dict):
        if not isinstance(value, collections.abc.Mapping) or value.keys() != structure.keys():
            raise _mismatch(structure, value, path)
        for key in sorted(structure):
            unpack(structure[key], value[key], leaves, f"{path}[{key!r}]")
    elif structure is None:
        if value is not None:
            raise _mismatch(structure, value, path)
    else:
        if not isinstance(value, (tuple, list)) or len(value) != len(structure):
            raise _mismatch(structure, value, path)
        fields = getattr(structure, "_fields", None)
        if fields is not None and getattr(value, "_fields", fields) != fields:
            raise _mismatch(structure, value, path)
        for i, (child, part) in enumerate(zip(structure, value, strict=True)):
            unpack(child, part, leaves, f"{path}.{fields[i]}" if fields else f"{path}[{i}]")


def to_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """`value` as an array; Python numbers and strings get the type of `spec`.

    Arrays and NumPy scalars keep their type, which the caller compares with `spec`.

    Raises:
      ValueError: if `value` is an integer out of the type's range.
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, np.generic) and not isinstance(value, (np.bytes_, np.str_)):
        return np.asarray(value)
    if isinstance(value, (str, bytes)):
        return np.array(value, dtype=object)  # NumPy's bytes arrays would drop trailing zeros.
    array = np.asarray(value)
    target = spec.numpy_dtype
    if array.dtype.kind in "iu" and target.kind in "iu":
        limits = np.iinfo(target)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise ValueError(f"{value} is out of the range of {spec.dtype}")
        return array.astype(target)
    if array.dtype.kind in "iuf" and (target.kind == "f" or spec.dtype == "bfloat16"):
        return array.astype(target)
    if array.dtype == np.float64:
        return array.astype(np.float32)  # As TensorFlow converts Python floats.
    return array


def _append_all(nested: Any, leaves: list[Any]) -> None:
    leaves += [leaf for leaf in nest.flatten(nested) if leaf is not None]


def _has_list(args: tuple[Any, ...]) -> bool:
    return any(isinstance(arg, list) for arg in args)


def _mismatch(structure: Structure, value: Any, path: str) -> StructureError:
    return StructureError(f"Expects {path} to be {_name(structure)}, but it is {_name(value)}")


def _name(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, collections.abc.Mapping):
        return f"a dictionary with the keys {sorted(value, key=str)}"
    if nest.is_namedtuple(value):
        return f"{type(value).__name__}{tuple(value._fields)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _tensor_from_json(content: Any) -> TensorSpec:
    if not isinstance(content, dict) or content.get("dtype") not in wire.DTYPE_NAMES:
        raise WireError(f"Not a tensor: {str(content)[:100]}")
    shape = content.get("shape")
    if shape is not None:
        valid = isinstance(shape, list) and len(shape) <= wire.MAX_RANK
        if not valid or not all(d is None or (type(d) is int and d >= 0) for d in shape):
            raise WireError(f"Not a shape: {str(shape)[:100]}")
        shape = tuple(shape)
    return TensorSpec(content["dtype"], shape, str(content.get("name") or ""))


def _children_from_json(content: Any, depth: int) -> list[Structure]:
    if not isinstance(content, list):
        raise WireError(f"Not a list of structures: {str(content)[:100]}")
    return [from_json(child, depth + 1) for child in content]


@functools.lru_cache(maxsize=256)  # Equal descriptions must give the same type.
def _namedtuple_type(name: str, fields: tuple[str, ...]) -> Any:
    try:
        return collections.namedtuple(name, fields)  # noqa: PYI024
    except ValueError as error:
        raise WireError(f"Not a named tuple: {error}") from None


_MISSING: Any = object()
_NESTS = (list, tuple, collections.abc.Mapping)
