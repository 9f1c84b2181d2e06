"""Values and losses that the parts of the agent log, collected by their caller.

    class Part(tf.Module, LoggingModule):
        def __call__(self, x):
            self.log("part/x", x)
            ...

    with LoggingTape(loss) as logs:     # of `loss` and all of its submodules
        result = loss(...)
    logs                                # {"part/x": <tensor>}

Each replica of a training strategy runs in a thread of its own. A tape only collects what its own
thread logs, because the tapes of all replicas are open at the same time, on the same modules.

A tape that is opened and closed within the body of a loop, or within a `tf.function`, holds tensors
of that graph: return their values from there instead of keeping the tape.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator

import tensorflow as tf


class ModuleAlreadyTapedError(ValueError):
    """A module logs to one place at a time: tapes cannot be nested."""


class _Logs(threading.local):
    """Where modules log to in this thread.

    Not attributes of the modules: a tf.Module would track the tensors in them.

    Attributes:
      by_module: by `id` of the module.
    """

    def __init__(self) -> None:
        self.by_module: dict[int, dict[str, tf.Tensor]] = {}


_logs = _Logs()


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
        logs = _logs.by_module.get(id(self))
        if logs is None:
            return
        if key in logs:
            raise ValueError(f"'{key}' was logged twice: each part needs its own keys.")
        logs[key] = tf.stop_gradient(tf.convert_to_tensor(tensor))

    def set_logging_dict(self, logging_dict: dict[str, tf.Tensor]) -> None:
        """From here on, logs to a dictionary, as within a tape, until `unset_logging_dict`.

        Raises:
          ModuleAlreadyTapedError: it logs to one already.
        """
        if id(self) in _logs.by_module:
            raise ModuleAlreadyTapedError(
                "Tapes cannot be nested: another LoggingTape records this module."
            )
        _logs.by_module[id(self)] = logging_dict

    def unset_logging_dict(self) -> None:
        """Ends logging; does nothing if there is none."""
        _logs.by_module.pop(id(self), None)


@contextlib.contextmanager
def LoggingTape(  # noqa: N802  The name that existing programs use.
    tracked_modules: tf.Module | Iterable[tf.Module],
) -> Iterator[dict[str, tf.Tensor]]:
    """Collects what modules and their submodules log within the context, tensors by key.

    Args:
      tracked_modules: one or several modules whose parts log; parts that are not `LoggingModule`s
        are ignored.

    Raises:
      ModuleAlreadyTapedError: another tape of this thread records one of the modules.
    """
    if isinstance(tracked_modules, tf.Module):
        tracked_modules = (tracked_modules,)
    every = [part for module in tracked_modules for part in (module, *module.submodules)]
    parts = {id(part): part for part in every if isinstance(part, LoggingModule)}
    logs: dict[str, tf.Tensor] = {}
    with contextlib.ExitStack() as opened:
        for part in parts.values():
            part.set_logging_dict(logs)
            opened.callback(part.unset_logging_dict)
        yield logs
