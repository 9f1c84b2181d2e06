"""A learner whose caller decides when it serves, trains and saves."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from seed_rl import grpc
from seed_rl.common.inference import saved_model
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.learner.learner import Learner
from seed_rl.common.learner.serving import serving


class SteppedLearner(Learner):
    """`Learner` in pieces: `serve`, `step` or `run`, `save`, and finally `close`."""

    def __init__(self, job: TrainingJob):
        """See `Learner`; from here on, the signals SIGTERM and SIGINT end `run`."""
        super().__init__(job)
        self._server: grpc.Server | None = None
        self._pending: Iterator[Any] | None = None
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stack.enter_context(self._stop)
            stack.callback(lambda: self._reporter.close(self.frames))
            stack.callback(self._algorithm.close)
            self._open = stack.pop_all()

    @property
    def train_steps(self) -> int:
        """Training steps done."""
        return self._train_steps

    @property
    def done(self) -> bool:
        """Whether all frames are used, or a stop was requested."""
        return self.finished or self._stop.requested

    def serve(self) -> grpc.Server:
        """Starts the server, unless it runs already.

        Raises:
          UserError: the address is in use or not allowed.
        """
        if self._server is None:
            server = serving(self._job, self._inference.functions)
            self._server = self._open.enter_context(server)
            self._open.callback(self._inference.store.close)
            self._open.enter_context(self._reporter.watching())
        return self._server

    def pull(self) -> Any:
        """Waits for a batch and takes it, so that it will not be trained on.

        Returns:
          What `Algorithm.update` is given; on several replicas, for each.
        """
        self.serve()
        batch = self._strategy.run(self._batch_codec.decode, args=(next(self._all_batches()),))
        self._inference.store.trained()  # Inference may continue.
        return batch

    def step(self) -> dict[str, tf.Tensor] | None:
        """Waits for experience and takes a training step.

        Returns:
          Its metrics <float32>[] by name; None if a stop ended the wait.
        """
        server = self.serve()
        self._await_experience(self._stop, server)
        return self._train_step(self._stop, server, self._all_batches())

    def run(self) -> None:
        """Trains until `done`, saving checkpoints from time to time."""
        self._loop(self._stop, self.serve(), self._all_batches())

    def copy_weights(self) -> None:
        """Copies the newest weights to the inference devices, as each training step does."""
        if self._copies:
            self._copy_weights()

    def save(self) -> None:
        """Saves a checkpoint; a failure is reported as a warning."""
        self._save()

    def export(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Exports the policy, by default to the logdir's place for it."""
        saved_model.save_model(
            directory or self._logdir / saved_model.DIRECTORY,
            self._algorithm.network,
            self._job.specs,
            self._algorithm.evaluate,
        )

    def logs(self) -> dict[str, Any]:
        """Learning rate, and what the algorithm logs besides the metrics of steps."""
        return self._extra_logs()

    def close(self) -> None:
        """Ends the run as `train` does: with a checkpoint, and the exported policy if configured.

        Raises:
          NotSavedError: the checkpoint could not be written.
        """
        with self._open:
            if self._server is not None:
                self._report(self._server, {}, last=True)
                self._inference.store.close()
                self._server.shutdown()  # Experience from here on would be lost.
                self._save_last()
                if self._config.save_model:
                    self.export()
        self._reporter.phase("done" if self.finished else "stopped", self.frames)

    def _all_batches(self) -> Iterator[Any]:
        if self._pending is None:
            self._pending = self._batches()
        return self._pending
