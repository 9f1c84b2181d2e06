"""Encodes and decodes the frames of the wire format (docs/wire_format.md) in NumPy.

Decoded tensors are read-only views of the message and may be unaligned; encoding copies each tensor
once, into the message.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seed_rl.grpc.errors import WireError

PROTOCOL_VERSION = 1
MAGIC = b"SDR1"
KIND_CALL, KIND_REPLY, KIND_ERROR = 0, 1, 2
MAX_RANK = 16
MAX_TENSORS = 0xFFFF
MAX_ELEMENTS = 2**59
"""Largest product of a tensor's nonzero dimensions."""
UNREADABLE_CALL_ID = 2**64 - 1
"""Call id of an error frame about a frame with an unreadable header."""

DTYPE_NAMES = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "string",
)
"""Names of the element types; the index is the wire code."""

BOOL = DTYPE_NAMES.index("bool")
BFLOAT16 = DTYPE_NAMES.index("bfloat16")
STRING = DTYPE_NAMES.index("string")

_HEADER = struct.Struct("<4sBBHQII")
_TENSOR = struct.Struct("<BBHIQ")
_NUMPY_DTYPES: list[np.dtype[Any] | None] = [
    None if name in ("bfloat16", "string") else np.dtype(name).newbyteorder("<")
    for name in DTYPE_NAMES
]
_CODES = {dtype: code for code, dtype in enumerate(_NUMPY_DTYPES) if dtype is not None}


class Frame(NamedTuple):
    """One decoded message.

    Attributes:
      kind: KIND_CALL, KIND_REPLY or KIND_ERROR.
      call_id: chosen by the client, echoed by the server.
      code: function index of a call, gRPC status code of an error, 0 for a reply.
      tensors: arrays; strings are object arrays of bytes.
      message: error message; empty for calls and replies.
    """

    kind: int
    call_id: int
    code: int
    tensors: list[np.ndarray]
    message: str


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type for a wire dtype name; strings are object arrays of bytes.

    Raises:
      WireError: if the name is unknown, or bfloat16 needs the missing package ml_dtypes.
    """
    if name == "string":
        return np.dtype(object)
    if name == "bfloat16":
        return _bfloat16()
    if name not in DTYPE_NAMES:
        raise WireError(f"Unknown dtype '{name}'.")
    return np.dtype(name)


def dtype_name(array: np.ndarray) -> str:
    """The wire dtype name for `array`; NumPy's own name if the type cannot be sent."""
    return "string" if array.dtype.kind in "OSUT" else array.dtype.name


def encode_call(call_id: int, function: int, tensors: Sequence[np.ndarray]) -> bytes:
    """Encodes a call of function number `function`.

    Raises:
      WireError: if a tensor has too many dimensions or a type that cannot be sent.
    """
    return _encode(KIND_CALL, call_id, function, tensors)


def encode_reply(call_id: int, tensors: Sequence[np.ndarray]) -> bytes:
    """Encodes the reply to call `call_id`; raises like `encode_call`."""
    return _encode(KIND_REPLY, call_id, 0, tensors)


def encode_error(call_id: int, code: int, message: str) -> bytes:
    """Encodes the failure of call `call_id` with a gRPC status code and a message."""
    text = message.encode("utf-8", "replace")
    return _HEADER.pack(MAGIC, KIND_ERROR, 0, 0, call_id, code, len(text)) + text


def decode(data: bytes) -> Frame:
    """Decodes one frame, which must fill `data` exactly.

    The tensors (except strings) are read-only views of `data` and keep it alive.

    Raises:
      WireError: if `data` violates the wire format.
    """
    if len(data) < _HEADER.size:
        raise WireError(f"The frame has {len(data)} bytes, less than a header (24).")
    magic, kind, zero, count, call_id, code, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise WireError(f"The frame starts with {magic!r} instead of {MAGIC!r}.")
    if kind > KIND_ERROR or zero:
        raise WireError(f"Unknown frame kind {kind} (padding {zero}).")
    if kind == KIND_ERROR and count or kind != KIND_ERROR and length or kind == KIND_REPLY and code:
        raise WireError("The frame sets fields that its kind does not use.")
    size = len(data)
    offset = _HEADER.size + length
    if offset > size:
        raise WireError(f"The message of {length} bytes does not fit in the frame.")
    message = _decode_message(data, length) if length else ""
    if count * _TENSOR.size > size - offset:
        raise WireError(f"The frame is too short for {count} tensors.")
    tensors = []
    for _ in range(count):
        tensor, offset = _decode_tensor(data, offset, size)
        tensors.append(tensor)
    if offset != size:
        raise WireError(f"The frame has {size - offset} extra bytes.")
    return Frame(kind, call_id, code, tensors, message)


def _encode(kind: int, call_id: int, code: int, tensors: Sequence[np.ndarray]) -> bytes:
    if len(tensors) > MAX_TENSORS:
        raise WireError(f"A frame holds at most {MAX_TENSORS} tensors, not {len(tensors)}.")
    parts: list[Any] = [_HEADER.pack(MAGIC, kind, 0, len(tensors), call_id, code, 0)]
    for tensor in tensors:
        dtype_code = _CODES.get(tensor.dtype)
        if dtype_code is None:
            dtype_code, tensor = _portable(tensor)
            if dtype_code == STRING:
                _append_strings(parts, tensor)
                continue
        parts.append(_tensor_header(dtype_code, tensor.shape, tensor.nbytes))
        # join() takes any flat buffer, so this is the only copy.
        parts.append(tensor if tensor.flags.c_contiguous else tensor.tobytes())
    return b"".join(parts)


def _portable(tensor: np.ndarray) -> tuple[int, np.ndarray]:
    """Wire code and a sendable form of a tensor that cannot be copied as it is."""
    if tensor.dtype.kind in "SUT":
        return STRING, tensor.astype(object)
    if tensor.dtype.kind == "O":
        return STRING, tensor
    if tensor.dtype.name == "bfloat16":
        # NumPy cannot export this type as a buffer.
        return BFLOAT16, np.ascontiguousarray(tensor).view(np.uint16).reshape(tensor.shape)
    little = tensor.dtype.newbyteorder("<")
    if little not in _CODES:
        raise WireError(f"Arrays of type {tensor.dtype} cannot be sent.")
    return _CODES[little], tensor.astype(little)


def _append_strings(parts: list[Any], tensor: np.ndarray) -> None:
    elements = [_to_bytes(element) for element in tensor.ravel().tolist()]
    lengths = [len(element) for element in elements]
    if lengths and max(lengths) > 0xFFFFFFFF:
        raise WireError("A string is longer than 4 GiB.")
    payload = 4 * len(elements) + sum(lengths)
    parts.append(_tensor_header(STRING, tensor.shape, payload))
    parts.append(struct.pack(f"<{len(lengths)}I", *lengths))
    parts.extend(elements)


def _to_bytes(element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode("utf-8")
    raise WireError(f"Object arrays hold strings or bytes, not {type(element).__name__}.")


@functools.lru_cache(maxsize=1024)  # A program uses few shapes, in every call.
def _tensor_header(code: int, shape: tuple[int, ...], payload: int) -> bytes:
    if len(shape) > MAX_RANK:
        raise WireError(f"A tensor has at most {MAX_RANK} dimensions, not {len(shape)}.")
    return _TENSOR.pack(code, len(shape), 0, 0, payload) + struct.pack(f"<{len(shape)}q", *shape)


def _decode_message(data: bytes, length: int) -> str:
    start = _HEADER.size
    return data[start : start + length].decode("utf-8", "replace")


def _decode_tensor(data: bytes, offset: int, size: int) -> tuple[np.ndarray, int]:
    """Returns the tensor at `offset` of the `size` bytes, and the offset after it."""
    if size - offset < _TENSOR.size:
        raise WireError("The frame ends inside a tensor's header.")
    code, rank, zero, zeros, payload = _TENSOR.unpack_from(data, offset)
    offset += _TENSOR.size
    if code >= len(DTYPE_NAMES) or rank > MAX_RANK or zero or zeros:
        raise WireError(f"A tensor has dtype {code}, rank {rank}, padding {zero or zeros}.")
    if size - offset < 8 * rank:
        raise WireError("The frame ends inside a tensor's dimensions.")
    shape = struct.unpack_from(f"<{rank}q", data, offset)
    offset += 8 * rank
    if payload > size - offset:
        raise WireError(f"A tensor's {payload} bytes do not fit in the frame.")
    elements = math.prod(shape)
    # If one dimension is zero the others are unlimited, but NumPy and TensorFlow reject overflow.
    if (shape and min(shape) < 0) or math.prod(d for d in shape if d) > MAX_ELEMENTS:
        raise WireError(f"A tensor has the impossible shape {list(shape)}.")
    if code == STRING:
        tensor = _decode_strings(data, offset, payload, elements)
    else:
        tensor = _decode_numbers(data, offset, payload, elements, code)
    return tensor.reshape(shape), offset + payload


def _decode_numbers(data: bytes, offset: int, payload: int, elements: int, code: int) -> np.ndarray:
    dtype = _NUMPY_DTYPES[code] or _bfloat16()
    if payload != elements * dtype.itemsize:
        raise WireError(
            f"A tensor of {elements} {DTYPE_NAMES[code]} elements has {payload} bytes of payload."
        )
    if not elements:  # frombuffer() cannot start at the very end.
        return np.empty(0, dtype)
    flat = np.frombuffer(data, dtype, elements, offset)
    if code == BOOL and flat.view(np.uint8).max() > 1:
        return flat.view(np.uint8) != 0
    return flat


def _decode_strings(data: bytes, offset: int, payload: int, elements: int) -> np.ndarray:
    if 4 * elements > payload:
        raise WireError(f"A tensor of {elements} strings has only {payload} bytes of payload.")
    lengths = struct.unpack_from(f"<{elements}I", data, offset)
    if 4 * elements + sum(lengths) != payload:
        raise WireError("The string lengths do not add up to the tensor's payload.")
    array = np.empty(elements, object)
    start = offset + 4 * elements
    for i, length in enumerate(lengths):
        array[i] = data[start : start + length]
        start += length
    return array


def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        raise WireError(
            "bfloat16 tensors need the package ml_dtypes: pip install ml_dtypes"
        ) from None
    return np.dtype(ml_dtypes.bfloat16)
