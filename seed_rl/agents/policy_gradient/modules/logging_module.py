"""Values and losses that the parts of the agent log, collected by whoever runs them.

    class Part(tf.Module, LoggingModule):
        def __call__(self, x):
            self.log("part/x", x)
            ...

    with LoggingTape(loss) as logs:     # of `loss` and all of its submodules
        result = loss(...)
    logs                                # {"part/x": <tensor>}

A tape that is opened and closed within the body of a loop, or within a `tf.function`, holds tensors
of that graph: return their values from there, do not keep the tape.

A tape records what is logged in its thread: several replicas run in threads that take turns.
"""

from __future__ import annotations

import threading
from types import TracebackType

import tensorflow as tf


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
        tape = _open_tapes.by_module.get(id(self))
        if tape is not None:
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
        tapes = _open_tapes.by_module
        if any(id(part) in tapes for part in self._modules):
            raise ValueError("Tapes cannot be nested: another LoggingTape records this module.")
        tapes.update({id(part): self for part in self._modules})
        return self.logs

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for part in self._modules:
            _open_tapes.by_module.pop(id(part), None)

    def add(self, key: str, tensor: tf.Tensor) -> None:
        """Records one value; see `LoggingModule.log`."""
        if key in self.logs:
            raise ValueError(f"'{key}' was logged twice: each part needs keys of its own.")
        self.logs[key] = tf.stop_gradient(tf.convert_to_tensor(tensor))


class _OpenTapes(threading.local):
    """The tapes that are open in a thread, by the id of each module that they record.

    Not attributes of the modules: a tf.Module would track the tensors in checkpoints.
    """

    def __init__(self) -> None:
        self.by_module: dict[int, LoggingTape] = {}


_open_tapes = _OpenTapes()
