"""The fields of an unroll in the replay, and the memory layout of batches."""

from __future__ import annotations

import ctypes
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from seed_rl.common import nest
from seed_rl.common.errors import UserError
from seed_rl.common.replay import native

_NO_FILTER, _SHUFFLE, _DELTA_SHUFFLE = range(3)


@dataclasses.dataclass(frozen=True)
class FieldSpec:
    """One array of an unroll.

    Attributes:
      shape: shape in one unroll; the first dimension is time if `time`.
      dtype: any NumPy dtype of fixed size except strings and objects.
      time: whether there is a time axis. Recurrent states have none: they belong to the first
        step of the unroll.
    """

    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    time: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if self.time and not self.shape:
            raise ValueError("A field with time needs at least one dimension.")
        if any(size < 0 for size in self.shape):
            raise ValueError(f"The shape {self.shape} has a negative size.")

    @property
    def nbytes(self) -> int:
        """Bytes of one unroll."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def batch_shape(self, size: int) -> tuple[int, ...]:
        """Shape of `size` unrolls: [time, batch, ...], without time [batch, ...]."""
        if self.time:
            return (self.shape[0], size, *self.shape[1:])
        return (size, *self.shape)


def unroll_specs(step_specs: nest.Nest, steps: int, state_specs: nest.Nest = None) -> Any:
    """Specs of unrolls, from the specs of their steps.

    Args:
      step_specs: nest of objects with the `shape` and `dtype` of one step (`tf.TensorSpec`, arrays,
        Gymnasium spaces).
      steps: steps per unroll.
      state_specs: nest of such objects for fields without time, such as recurrent states.

    Returns:
      Nest of `FieldSpec` like `step_specs`; with `state_specs`, the pair (state, steps).
    """
    timed = nest.map_structure(lambda s: FieldSpec((steps, *s.shape), _numpy_dtype(s)), step_specs)
    if state_specs is None:
        return timed
    once = nest.map_structure(
        lambda s: FieldSpec(tuple(s.shape), _numpy_dtype(s), time=False), state_specs
    )
    return once, timed


def _numpy_dtype(spec: Any) -> np.dtype:
    return np.dtype(getattr(spec.dtype, "as_numpy_dtype", spec.dtype))


class Layout:
    """Maps nests of arrays to the views that the native library reads and writes.

    Args:
      specs: nest of `FieldSpec`.

    Raises:
      UserError: a field cannot be stored.
    """

    def __init__(self, specs: nest.Nest):
        self.specs = specs
        self.fields: list[FieldSpec] = nest.flatten(specs)
        self.names = _paths(specs)
        if not self.fields:
            raise ValueError("An unroll needs at least one field.")
        for name, field in zip(self.names, self.fields, strict=True):
            if not isinstance(field, FieldSpec):
                raise TypeError(f"specs{name} must be a FieldSpec, got {field!r}.")
            if np.dtype(field.dtype).hasobject or np.dtype(field.dtype).kind in "SU":
                raise UserError(
                    f"The replay cannot store{name or ' the value'} of dtype {field.dtype}, only "
                    "numbers and booleans of a fixed size. Encode it as uint8 in the environment."
                )

    @property
    def unroll_bytes(self) -> int:
        """Bytes of an unroll as arrays."""
        return sum(field.nbytes for field in self.fields)

    def native_fields(self) -> ctypes.Array[native.Field]:
        """The fields as structs of the native library."""
        return (native.Field * len(self.fields))(*[_native_field(f) for f in self.fields])

    def describe(self) -> list[dict[str, Any]]:
        """The fields as JSON values, for comparison with those of a checkpoint."""
        return [
            {"name": name, "shape": list(f.shape), "dtype": np.dtype(f.dtype).name, "time": f.time}
            for name, f in zip(self.names, self.fields, strict=True)
        ]

    def arrays(self, values: nest.Nest) -> tuple[list[np.ndarray], int]:
        """Checks a batch of unrolls.

        Returns:
          Its arrays, C-contiguous, in the order of `fields`, and the number of unrolls.

        Raises:
          ValueError: structure, dtype or shape differ from the specs.
        """
        leaves = nest.flatten(values)
        if len(leaves) != len(self.fields):
            raise ValueError(f"Unrolls have {len(self.fields)} fields, got {len(leaves)}.")
        arrays = [np.ascontiguousarray(leaf) for leaf in leaves]
        axis = 1 if self.fields[0].time else 0
        size = arrays[0].shape[axis] if arrays[0].ndim > axis else -1
        for name, field, array in zip(self.names, self.fields, arrays, strict=True):
            expected = field.batch_shape(size)
            if array.dtype != field.dtype or array.shape != expected:
                raise ValueError(
                    f"values{name} must be {field.dtype}{list(field.batch_shape(-1))} "
                    f"(-1: number of unrolls), got {array.dtype}{list(array.shape)}."
                )
        return arrays, size

    def views(self, arrays: list[np.ndarray]) -> ctypes.Array[native.View]:
        """Views of the C-contiguous `arrays` of a batch; the arrays must outlive the views."""
        return (native.View * len(arrays))(
            *[_view(f, a) for f, a in zip(self.fields, arrays, strict=True)]
        )

    def pack(self, arrays: list[np.ndarray]) -> nest.Nest:
        """The arrays in the structure of the specs."""
        return nest.pack_sequence_as(self.specs, arrays)


def _view(field: FieldSpec, array: np.ndarray) -> native.View:
    step, batch = array.strides[:2] if field.time else (0, array.strides[0])
    return native.View(native.pointer(array), batch, step)


def _native_field(field: FieldSpec) -> native.Field:
    dtype = np.dtype(field.dtype)
    steps = field.shape[0] if field.time else 1
    items = math.prod(field.shape[1:]) if field.time else math.prod(field.shape)
    if dtype.itemsize not in (2, 4, 8):
        arranged = _NO_FILTER
    elif dtype.kind in "iumM":
        arranged = _DELTA_SHUFFLE
    else:
        arranged = _SHUFFLE
    return native.Field(steps, items, dtype.itemsize, arranged)


def _paths(structure: nest.Nest, path: str = "") -> list[str]:
    """Names of the leaves in the order of `flatten`, like `.env_outputs.observation['pixels']`."""
    if isinstance(structure, Mapping):
        children = [(f"[{key!r}]", structure[key]) for key in sorted(structure)]
    elif nest.is_namedtuple(structure):
        children = [(f".{name}", getattr(structure, name)) for name in structure._fields]
    elif isinstance(structure, (tuple, list)):
        children = [(f"[{i}]", child) for i, child in enumerate(structure)]
    else:
        return [path]
    return [leaf for name, child in children for leaf in _paths(child, path + name)]
