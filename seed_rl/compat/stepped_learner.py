"""A learner whose caller decides when it serves, trains and saves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from seed_rl import grpc
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.learner.learner import Learner


class SteppedLearner(Learner):
    """`Learner` in pieces: `serve`, `step` or `run`, `save`, and finally `close`."""

    def __init__(self, job: TrainingJob):
        """See `Learner`; from here on, the signals SIGTERM and SIGINT end `run`."""
        super().__init__(job)
        self._server: grpc.Server | None = None
        self._pending: Iterator[Any] | None = None
        self._open = contextlib.ExitStack()
        self._open.enter_context(self._opened())

    def serve(self) -> grpc.Server:
        """Starts the server, unless it runs already.

        Raises:
          UserError: the address is in use or not allowed.
        """
        if self._server is None:
            self._server = self._open.enter_context(self._serving())
        return self._server

    def pull(self) -> Any:
        """Waits for a batch and takes it, so that it will not be trained on.

        Returns:
          What `Algorithm.update` is given; on several replicas, for each.
        """
        self.serve()
        batch = self._strategy.run(self._decode, args=(next(self._all_batches()),))
        self._inference.store.trained()  # Inference may continue.
        return batch

    def step(self) -> dict[str, tf.Tensor] | None:
        """Waits for experience and takes a training step.

        Returns:
          Its metrics <float32>[] by name; None if a stop ended the wait.
        """
        self.serve()
        self._await_experience()
        return self._train_step(self._all_batches())

    def run(self) -> None:
        """Trains until `done`, saving checkpoints from time to time."""
        while not self.done and self.step() is not None:
            self._save_if_due()

    def close(self) -> None:
        """Ends the run as `train` does: with a checkpoint, and the exported policy if configured.

        Raises:
          NotSavedError: the checkpoint could not be written.
        """
        with self._open:
            if self._server is not None:
                self._finish(self._server, on_trained=lambda: None)

    def _all_batches(self) -> Iterator[Any]:
        if self._pending is None:
            self._pending = self._batches()
        return self._pending
