"""Batched remote calls of tf.functions.

Names are loaded on first use, so that importing this package or its NumPy client does not import
TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seed_rl.grpc.channel_options import ClientOptions, ServerOptions
    from seed_rl.grpc.numpy_client import Client as NumpyClient
    from seed_rl.grpc.ops import Client, Server

__all__ = ["Client", "ClientOptions", "NumpyClient", "Server", "ServerOptions"]

_HOMES = {
    "Client": ("seed_rl.grpc.ops", "Client"),
    "ClientOptions": ("seed_rl.grpc.channel_options", "ClientOptions"),
    "NumpyClient": ("seed_rl.grpc.numpy_client", "Client"),
    "Server": ("seed_rl.grpc.ops", "Server"),
    "ServerOptions": ("seed_rl.grpc.channel_options", "ServerOptions"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
