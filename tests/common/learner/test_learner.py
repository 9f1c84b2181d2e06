"""The learner's loop, without a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.learner.learner import Learner

END = tf.errors.OutOfRangeError(None, None, "the end")
ERROR = tf.errors.InvalidArgumentError(None, None, "TypeError: of a loss or a generator")


class Done(Learner):
    """Has used all frames; its next training step raises."""

    done = True

    def __init__(self, error: Exception, closed: bool, check: Any = lambda: None):
        store: Any = SimpleNamespace(closed=closed, trained=None)
        self._inference: Any = SimpleNamespace(store=store)
        self._algorithm: Any = SimpleNamespace(check=check)
        self._training: Any = SimpleNamespace(run=lambda *_: self._raise(error))

    def _raise(self, error: Exception) -> None:
        raise error

    def step(self) -> Any:
        return self._train_step(iter(()))


def test_only_closed_batches_end() -> None:
    """Guards a run that reports success though its last steps failed, or even all."""
    assert Done(ERROR, closed=True).step() is None  # How tf.data may report a closed store.
    assert Done(END, closed=False).step() is None
    with pytest.raises(tf.errors.InvalidArgumentError, match="TypeError"):
        Done(ERROR, closed=False).step()

    def check() -> None:
        raise UserError("The thread that fills the replay failed.")

    with pytest.raises(UserError, match="fills the replay"):
        Done(END, closed=False, check=check).step()
