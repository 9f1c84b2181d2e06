"""The learner's loop, without a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from seed_rl.common.errors import UserError
from seed_rl.common.learner.learner import Learner
from seed_rl.common.monitoring.skipped_steps import WARN_AFTER
from seed_rl.common.run_files import checkpoint_list

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


@pytest.mark.parametrize(
    ("skipped", "finished", "saves"),
    [(WARN_AFTER, False, False), (WARN_AFTER - 1, False, True), (WARN_AFTER, True, True)],
)
def test_a_stop_saves_no_suspect_weights(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, skipped: int, finished: bool, saves: bool
) -> None:
    """Guards the newest checkpoint, if all of the last steps before Ctrl-C were skipped."""
    (tmp_path / "checkpoints" / checkpoint_list.name(1, 4000)).mkdir(parents=True)
    saved = []

    class Stopped(Learner):
        def __init__(self) -> None:
            reporter = SimpleNamespace(phase=lambda *_: None, skipped_in_a_row=lambda: skipped)
            self._reporter: Any = reporter
            self._logdir = tmp_path
            self._callbacks: Any = SimpleNamespace(failed=False)
            self._checkpoints: Any = SimpleNamespace(problem=None)
            self._config: Any = SimpleNamespace(total_environment_frames=9000, save_model=False)
            self._inference: Any = SimpleNamespace(store=SimpleNamespace(close=lambda **_: None))

        frames = 5000

        @property
        def finished(self) -> bool:
            return finished

        def _report(self, *_: Any, **__: Any) -> None:
            pass

        def save(self) -> None:
            saved.append(self.frames)

    server: Any = SimpleNamespace(shutdown=lambda: None, stats=lambda: {"connections": 0})
    Stopped()._finish(server, lambda: None)
    assert saved == ([5000] if saves else [])
    told = f"the last {WARN_AFTER} training steps were skipped. The newest checkpoint: 4,000 frames"
    assert (told in caplog.text) != saves
