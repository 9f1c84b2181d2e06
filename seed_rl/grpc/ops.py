"""Server and client built on native TensorFlow ops.

    server = Server(["unix:/tmp/agent"])
    server.bind(inference)  # a tf.function with an input signature
    server.start()

    client = Client("unix:/tmp/agent")
    actions = client.inference(env_ids, observations)  # eager, or inside a tf.function

The server batches calls and runs the functions without Python. Programs without TensorFlow use
`seed_rl.grpc.numpy_client`.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import pathlib
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as tf_context

import seed_rl
from seed_rl.common.errors import UserError
from seed_rl.common.native import op_library
from seed_rl.common.system.memory import available_bytes
from seed_rl.grpc import structures, wire
from seed_rl.grpc.bound_function import BoundFunction
from seed_rl.grpc.channel_options import ClientOptions, ServerOptions, warn_of_bare_token


def _ops() -> Any:
    return op_library.load_ops("libseed_grpc_ops")


class Server:
    """Serves tf.functions to clients on this and other machines.

    Calls are batched if all arguments and outputs of a function have the same leading dimension. If
    it is N, the function runs on exactly N rows; if None, on whatever rows are waiting when it is
    free. A call without that dimension is one row; a call with it fills several rows. Any other
    function runs once per call.

    Attributes:
      ports: after `start`, the port of each address (0 for Unix sockets).
    """

    def __init__(self, server_addresses: Sequence[str], options: ServerOptions | None = None):
        """Creates a server; `start` makes it listen.

        Args:
          server_addresses: each "unix:/path" or "host:port"; port 0 picks a free port.
          options: limits, token, TLS; the default serves this machine only.

        Raises:
          tf.errors.InvalidArgumentError: if the addresses are not a non-empty list.
          UserError: if the TLS files cannot be read.
        """
        self._options = options or ServerOptions()
        self._addresses = server_addresses
        self._bound: list[BoundFunction] = []
        self._status: dict[str, Any] = {}
        self._shut_down = False
        self.ports: list[int] = []
        self._process = os.getpid()
        self._handle = self._make()
        _servers.add(self)

    def _make(self) -> tf.Tensor:
        """Creates a native server."""
        options = self._options
        with tf.init_scope(), tf.device("cpu:0"):
            return _ops().seed_grpc_server(
                server_addresses=tf.convert_to_tensor(self._addresses, tf.string),
                token=options.token or "",
                tls_certificate=_read(options.tls_certificate),
                tls_key=_read(options.tls_key),
                max_batch_size=options.max_batch_size,
                batch_timeout_ms=options.batch_timeout_ms,
                max_message_bytes=options.max_message_bytes,
                max_connections=options.max_connections,
                max_calls_per_peer=options.max_calls_per_peer,
                max_bytes_per_peer=options.max_bytes_per_peer,
                max_bytes=options.max_bytes or max(2**30, available_bytes() // 8),
                keepalive_s=options.keepalive_s,
                threads=options.threads,
            )

    def bind(
        self,
        fn: Callable[..., Any] | Sequence[Callable[..., Any]],
        isolate_errors: bool = False,
        max_in_flight: int = 1,
        op_threads: int = 0,
    ) -> None:
        """Binds a tf.function under its name.

        Args:
          fn: a tf.function with an input signature or without arguments; or several with equal
            signatures and outputs (e.g. one per device), which take turns under the name of the
            first.
          isolate_errors: if a batch fails, run its calls again in smaller groups, so that only the
            callers at fault see an error. Only with a dynamic leading dimension.
          max_in_flight: how many runs of each function may overlap.
          op_threads: CPU threads for the ops of each function; 0 uses TensorFlow's shared pool.
            With its own threads, a small function never waits behind the large ops of, say, a
            training step.

        Raises:
          tf.errors.InvalidArgumentError: if the name is already bound or the server is running.
          ValueError: if `fn` is not a tf.function with an input signature, or an argument or output
            cannot be sent.
        """
        if self._shut_down:
            self._renew()
        bound = BoundFunction(
            fn, isolate_errors=isolate_errors, max_in_flight=max_in_flight, op_threads=op_threads
        )
        self._bind(bound)
        self._bound.append(bound)

    def _bind(self, bound: BoundFunction) -> None:
        with tf.init_scope(), tf.device("cpu:0"):
            _ops().seed_grpc_server_bind(
                server=self._handle,
                captures=[tensor for f in bound.functions for tensor in f.captured_inputs],
                num_captures=[len(f.captured_inputs) for f in bound.functions],
                functions=bound.functions,
                function_name=bound.name,
                argument_types=[spec.dtype for spec in bound.arguments],
                argument_shapes=[spec.shape for spec in bound.arguments],
                num_results=len(bound.outputs),
                batch=bound.batch,
                config=tf_context.context().function_call_options.config_proto_serialized,
                **bound.options,
            )

    def start(self) -> None:
        """Starts serving; after `shutdown`, serves again at the same addresses.

        Warns if the token is sent without encryption to an address that others can reach.

        Raises:
          tf.errors.UnavailableError: if no function was bound, or an address is in use.
          tf.errors.InvalidArgumentError: if the server is already started, or an address is
            invalid.
          UserError: other machines can reach an address, and the options neither have a token or
            TLS nor are `insecure`.
        """
        for address in self._texts():
            self._options.check_exposed(address)
        if self._shut_down:
            self._renew()
        ports = _ops().seed_grpc_server_start(self._handle, json.dumps(self.description()))
        self.ports = [int(port) for port in ports]
        for address in self._texts():
            warn_of_bare_token(self._options, address)

    def description(self) -> dict[str, Any]:
        """What `start` makes the server answer to Describe; see docs/wire_format.md."""
        return {
            "protocol": wire.PROTOCOL_VERSION,
            "version": seed_rl.__version__,
            "functions": [bound.to_json() for bound in self._bound],
        }

    def shutdown(self) -> None:
        """Fails all calls with "server closed", disconnects the clients and returns.

        Does nothing in a forked process: the server is the parent's.
        """
        if os.getpid() != self._process:
            return
        _ops().seed_grpc_server_shutdown(self._handle)
        self._shut_down = True

    def _renew(self) -> None:
        """Replaces the native server after a shutdown; ports that it picked are kept."""
        addresses = self._texts()
        self._addresses = [
            f"{address.rpartition(':')[0]}:{port}" if port else address
            for address, port in zip(addresses, self.ports or [0] * len(addresses), strict=True)
        ]
        self._handle = self._make()
        self._shut_down = False
        for bound in self._bound:
            self._bind(bound)
        self.set_status(self._status)

    def _texts(self) -> list[str]:
        """The addresses."""
        return [address.decode() for address in tf.convert_to_tensor(self._addresses).numpy()]

    def stats(self) -> dict[str, Any]:
        """The server's counters and status; see Stats in docs/wire_format.md."""
        return json.loads(_ops().seed_grpc_server_stats(self._handle).numpy())

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Sets "status" in `stats`, here and for the clients."""
        self._status = dict(status)
        _ops().seed_grpc_server_set_status(self._handle, json.dumps(self._status))


class Client:
    """A connection to a server, with one method per bound function.

    The methods take and return nests of tensors, work eagerly and inside tf.functions, and raise
    `tf.errors`. After an UnavailableError from a broken connection the client is unusable: create a
    new one.
    """

    def __init__(self, server_address: str, options: ClientOptions | None = None):
        """Connects, waiting for the server if necessary.

        Args:
          server_address: "unix:/path" or "host:port".
          options: timeouts, token, TLS; the default trusts the network.

        Raises:
          tf.errors.UnavailableError: if no server answers within `options.connect_timeout_s`.
          tf.errors.UnauthenticatedError: if the server requires another token.
          tf.errors.InvalidArgumentError: if the address is not a single string.
          UserError: if the TLS file cannot be read.
        """
        options = options or ClientOptions()
        if isinstance(server_address, str):
            warn_of_bare_token(options, server_address)
        self._process = os.getpid()
        _clients.add(self)
        with tf.init_scope(), tf.device("cpu:0"):
            self._handle, description = _ops().seed_grpc_client(
                server_address=tf.convert_to_tensor(server_address, tf.string),
                token=options.token or "",
                tls_ca=_read(options.tls_ca),
                tls_cert=_read(options.tls_cert),
                tls_key=_read(options.tls_key),
                connect_timeout_s=options.connect_timeout_s,
                call_timeout_s=options.call_timeout_s or 0.0,
                max_message_bytes=options.max_message_bytes,
                tls=options.tls_ca is not None,
                keepalive_s=options.keepalive_s,
            )
        described = json.loads(description.numpy())
        if described["protocol"] != wire.PROTOCOL_VERSION:
            raise UserError(
                f"The server at {server_address} speaks protocol {described['protocol']}, this "
                f"client {wire.PROTOCOL_VERSION}; install the same version of SEED RL on both "
                "sides."
            )
        self.functions: dict[str, _Remote] = {}
        for i, function in enumerate(described["functions"]):
            remote = _Remote(self._handle, i, function)
            self.functions[remote.name] = remote
            if not hasattr(self, remote.name):
                setattr(self, remote.name, remote)

    def close(self) -> None:
        """Disconnects; calls in flight fail with `tf.errors.CancelledError`.

        Does nothing in a forked process: the connection is the parent's.
        """
        if os.getpid() != self._process:
            return
        _ops().seed_grpc_client_close(self._handle)

    def __getattr__(self, name: str) -> Any:
        known = list(self.__dict__.get("functions", {}))
        raise AttributeError(f"The server has no function {name!r}; it has {known}")


class _Remote:
    """A server function that the client can call."""

    def __init__(self, handle: tf.Tensor, index: int, description: Mapping[str, Any]):
        self.name: str = description["name"]
        self.batch: int | None = description["batch"]
        self.arguments = structures.from_json(description["arguments"])
        self.outputs = structures.from_json(description["outputs"])
        self._handle = handle
        self._index = index
        self._argument_specs = structures.specs(self.arguments)
        self._output_specs = structures.specs(self.outputs)
        first_shape = self._argument_specs[0].shape if self._argument_specs else None
        self._argument_rank = None if first_shape is None else len(first_shape)
        self._result_types = [tf.dtypes.as_dtype(spec.dtype) for spec in self._output_specs]

    def __call__(self, *args: Any) -> Any:
        """Calls the function and returns its outputs.

        Raises:
          tf.errors.OpError: the function's own error; InvalidArgumentError if the arguments do not
            match; UnavailableError if the server is gone.
        """
        try:
            leaves = structures.unpack_arguments(self.arguments, args)
        except structures.StructureError as error:
            raise tf.errors.InvalidArgumentError(None, None, str(error)) from None
        tensors = [
            tf.convert_to_tensor(leaf, dtype_hint=spec.dtype)
            for leaf, spec in zip(leaves, self._argument_specs, strict=True)
        ]
        if tf.executing_eagerly():
            results = self._send(tensors)  # Runs on the device of the client's handle.
        else:
            with tf.device("cpu:0"):
                results = self._send(tensors)
            self._set_shapes(tensors, results)
        return structures.pack(self.outputs, results)

    def _send(self, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
        return _ops().seed_grpc_client_call(
            self._handle,
            tensors,
            function=self._index,
            result_types=self._result_types,
            name=self.name,
        )

    def _set_shapes(self, tensors: list[tf.Tensor], results: list[tf.Tensor]) -> None:
        rows: list[int | None] = []
        if self.batch is not None:
            shape = tensors[0].shape
            if shape.rank is None:
                return
            if shape.rank == self._argument_rank:
                rows = [shape[0]]
        for result, spec in zip(results, self._output_specs, strict=True):
            if spec.shape is not None:
                result.set_shape(spec.shape if self.batch is None else (*rows, *spec.shape[1:]))


def _read(path: str | None) -> bytes:
    if path is None:
        return b""
    try:
        return pathlib.Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"Cannot read {path}: {error.strerror}") from error


# An unreferenced server shuts down by itself. A server that still exists when Python exits must be
# shut down here: its threads would run functions while TensorFlow is torn down.
_servers: weakref.WeakSet[Server] = weakref.WeakSet()
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


@atexit.register
def _shut_down_all() -> None:
    for server in list(_servers):
        server.shutdown()


def _keep_handles() -> None:
    """Keeps a forked process from deleting handles when it exits, which would end their servers.

    The sockets are the parent's, and gRPC, whose threads do not exist here, would abort the
    process.
    """
    for owner in (*_servers, *_clients):
        handle = vars(owner).get("_handle")  # Missing while it is created.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))


os.register_at_fork(after_in_child=_keep_handles)
