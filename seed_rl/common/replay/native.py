"""Bindings of the replay's native library, through ctypes.

ctypes lets other Python threads run during every call. `UnrollStorage` owns the handles; the rest
of this package goes through it.
"""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import POINTER, byref, c_char_p, c_double, c_int32, c_int64, c_void_p
from typing import Any

import numpy as np

from seed_rl.common.errors import UserError
from seed_rl.common.native import native_library


class DamagedError(Exception):
    """Bytes in the replay differ from those that were stored."""


class Field(ctypes.Structure):
    _fields_ = [
        ("steps", c_int64),
        ("step_items", c_int64),
        ("item_bytes", c_int32),
        ("filter", c_int32),
    ]


class View(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("batch_stride", c_int64), ("step_stride", c_int64)]


class Options(ctypes.Structure):
    _fields_ = [
        ("capacity", c_int64),
        ("max_bytes", c_int64),
        ("segment_bytes", c_int64),
        ("level", c_int32),
        ("exponent", c_double),
    ]


class Stats(ctypes.Structure):
    _fields_ = [
        ("oldest_key", c_int64),
        ("next_key", c_int64),
        ("payload_bytes", c_int64),
        ("total_bytes", c_int64),
        ("raw_bytes", c_int64),
        ("evicted_early", c_int64),
        ("late_updates", c_int64),
        ("total_priority", c_double),
        ("mean_inserted_at", c_double),
    ]


class Segment(ctypes.Structure):
    _fields_ = [
        ("first_key", c_int64),
        ("count", c_int64),
        ("bytes", c_int64),
        ("ends", c_void_p),
        ("data", c_void_p),
    ]


class Entries(ctypes.Structure):
    _fields_ = [
        ("oldest_key", c_int64),
        ("next_key", c_int64),
        ("num_segments", c_int64),
        ("priorities", c_void_p),
        ("inserted_at", c_void_p),
    ]


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "replay_error": (c_char_p, []),
    "replay_create": (c_int64, [c_int64, c_void_p, POINTER(Options), POINTER(c_void_p)]),
    "replay_destroy": (None, [c_void_p]),
    "replay_insert": (c_int64, [c_void_p, c_int64, c_void_p, c_void_p, c_double, c_void_p]),
    "replay_sample": (c_int64, [c_void_p, c_int64, *[c_void_p] * 4]),
    "replay_update_priorities": (c_int64, [c_void_p, c_int64, c_void_p, c_void_p]),
    "replay_set_exponent": (None, [c_void_p, c_double]),
    "replay_stats": (None, [c_void_p, POINTER(Stats)]),
    "replay_restore_segment": (c_int64, [c_void_p, c_int64, c_int64, c_void_p, c_void_p]),
    "replay_restore_entries": (c_int64, [c_void_p, c_int64, c_void_p, c_void_p]),
    "replay_snapshot": (c_int64, [c_void_p, POINTER(c_void_p)]),
    "replay_snapshot_destroy": (None, [c_void_p]),
    "replay_snapshot_entries": (None, [c_void_p, POINTER(Entries)]),
    "replay_snapshot_segment": (None, [c_void_p, c_int64, POINTER(Segment)]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """The library; loads it on the first call.

    Raises:
      UserError: it was not built, or does not load.
    """
    path = native_library.path("libseed_replay")
    try:
        # DEEPBIND: use its own copy of zstd, not the one that TensorFlow exports.
        loaded = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(loaded, f"seed_{name}")
            function.restype = result
            function.argtypes = arguments
    except (OSError, AttributeError) as error:
        raise UserError(f"The native library {path} does not load: {error}") from error
    return loaded


def call(name: str, *arguments: Any) -> int:
    """Calls the function `seed_<name>` and returns its result.

    Raises:
      ValueError, DamagedError, MemoryError: the call failed.
    """
    result: int = getattr(library(), f"seed_{name}")(*arguments)
    if result >= 0:
        return result
    message = library().seed_replay_error().decode()
    raise {-1: ValueError, -3: MemoryError}.get(result, DamagedError)(message)


def create(name: str, *arguments: Any) -> c_void_p:
    """Calls a function that stores a new object in its last argument; returns the handle."""
    handle = c_void_p()
    call(name, *arguments, byref(handle))
    return handle


def pointer(array: np.ndarray) -> int:
    """Address of a C-contiguous array; the caller must keep the array alive during the call."""
    return array.ctypes.data
