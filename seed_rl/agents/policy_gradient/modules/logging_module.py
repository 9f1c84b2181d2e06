"""Values and losses that the parts of the agent log, collected by their caller.

    class Part(tf.Module, LoggingModule):
        def __call__(self, x):
            self.log("part/x", x)
            ...

    with LoggingTape(loss) as logs:     # of `loss` and all of its submodules
        result = loss(...)
    logs                                # {"part/x": <tensor>}

Each replica of a training strategy runs in a thread of its own. A tape collects what its own thread
logs: the tapes of all replicas are open at the same time, on the same modules.

A tape that is opened and closed within the body of a loop, or within a `tf.function`, holds tensors
of that graph: return their values from there, do not keep the tape.
"""

from __future__ import annotations

import threading
from types import TracebackType

import tensorflow as tf


class _OpenTapes(threading.local):
    """The tapes of this thread.

    Not attributes of the modules: a tf.Module would track the tensors in them.

    Attributes:
      by_module: by `id` of the module that they record.
    """

    def __init__(self) -> None:
        self.by_module: dict[int, LoggingTape] = {}


_open = _OpenTapes()


class LoggingModule:
    """Mixin of a `tf.Module` that logs; without a tape, logging does nothing."""

    def log(self, key: str, tensor: tf.Tensor) -> None:
        """Logs a value to the open tape.

        Args:
          key: name in TensorBoard, such as "losses/policy"; once per tape.
          tensor: numbers of any shape, averaged by the training step. No gradient flows.

        Raises:
          ValueError: the key was logged before.
        """
        if (tape := _open.by_module.get(id(self))) is not None:
            tape.add(key, tensor)


class LoggingTape:
    """Collects what a module and its submodules log, as a context manager."""

    def __init__(self, module: tf.Module):
        """Records nothing yet.

        Args:
          module: whose parts log; those that are no `LoggingModule` are passed over.
        """
        self._modules = [
            part for part in (module, *module.submodules) if isinstance(part, LoggingModule)
        ]
        self.logs: dict[str, tf.Tensor] = {}

    def __enter__(self) -> dict[str, tf.Tensor]:
        """Starts recording.

        Returns:
          What is logged until the end of the context, tensors by key.

        Raises:
          ValueError: another tape of this thread records one of the modules.
        """
        if any(id(part) in _open.by_module for part in self._modules):
            raise ValueError("Tapes cannot be nested: another LoggingTape records this module.")
        _open.by_module.update({id(part): self for part in self._modules})
        return self.logs

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for part in self._modules:
            del _open.by_module[id(part)]

    def add(self, key: str, tensor: tf.Tensor) -> None:
        """Records one value; see `LoggingModule.log`."""
        if key in self.logs:
            raise ValueError(f"'{key}' was logged twice: each part needs keys of its own.")
        self.logs[key] = tf.stop_gradient(tf.convert_to_tensor(tensor))
