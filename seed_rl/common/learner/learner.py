"""The learner: serves inference, trains, saves checkpoints and reports progress.

One loop, in `Learner.train`, serves every agent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from seed_rl import grpc
from seed_rl.common.acting.environment_family import Tasks
from seed_rl.common.callbacks import Callbacks, Run
from seed_rl.common.checkpoints import checkpoints
from seed_rl.common.errors import NotSavedError, UserError
from seed_rl.common.inference import saved_model
from seed_rl.common.inference.inference import CentralInference, check_exportable, initialize
from seed_rl.common.learner import devices
from seed_rl.common.learner.serving import serving
from seed_rl.common.learner.training import BATCHES_END, TrainingStep
from seed_rl.common.monitoring.clips import Clips
from seed_rl.common.monitoring.reporting import Reporter
from seed_rl.common.monitoring.skipped_steps import WARN_AFTER
from seed_rl.common.run_files import checkpoint_list
from seed_rl.common.system.file_lock import LearnerLock
from seed_rl.common.system.stop_signal import StopSignal

if TYPE_CHECKING:
    from seed_rl.common.learner.job import TrainingJob

_REPORT_WAITING_S = 0.5
_GRADIENT_STEPS = "gradient_steps"
_FAREWELL_S = 20.0  # How long actors in a long step have to learn that training is done.
_UNTRAINED = (
    "Nothing was learned: all {:,} environment frames were collected before the first training "
    "step. Raise --total_environment_frames, or lower --replay_ratio_slack, which lets actors run "
    "ahead."
)


class Learner:
    """One training run, from its start or newest checkpoint to its last frame.

    Attributes:
      train_steps: training steps done, including those before the run was resumed.
    """

    def __init__(self, job: TrainingJob):
        """Creates all variables and restores the newest checkpoint, if any.

        Raises:
          UserError: incompatible options, a logdir that is unwritable or in use by another learner,
            a checkpoint of another agent.
        """
        self._job = job
        self._run = job.run
        self._config = job.config
        self._strategy = job.devices.training_strategy
        self._encode, self._decode = devices.through_tf_data(job.devices.encode, job.devices.decode)
        self._algorithm = job.algorithm
        self._logdir = _writable_directory(job.run.logdir)
        self._lock = LearnerLock(self._logdir)
        try:
            self._create()
        except BaseException:
            self._lock.release()  # The program may go on, and try again.
            raise

    def _create(self) -> None:
        """Creates what training needs, and restores the newest checkpoint, if any."""
        job, run, config = self._job, self._run, self._config
        with self._strategy.scope():
            initialize(self._algorithm, self._algorithm.network, job.specs)
            if config.save_model:
                check_exportable(self._algorithm.network)
            self._saved_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="train_steps")
        self._training = TrainingStep(
            self._algorithm,
            job.optimizer,
            self._strategy,
            job.clip_norm,
            self._decode,
            job.jit,
        )
        self._trackables = dict(
            agent=self._algorithm.network,
            optimizer=job.optimizer,
            train_steps=self._saved_steps,
            **self._algorithm.checkpointables(),
        )
        self._checkpoints = self._checkpoint_manager()
        self.train_steps, self._start_frames = self._restore()
        self._start_unrolls = self._algorithm.unrolls_consumed
        network, make_network = self._algorithm.network, self._algorithm.make_network
        taken_at_once = self._algorithm.taken_at_once(config.batch_size)
        placements = job.devices.place_inference(network, make_network)
        self._inference = CentralInference(
            self._algorithm,
            job.specs,
            placements,
            num_envs=run.num_envs,
            num_eval_envs=run.num_eval_envs,
            max_batch=config.max_inference_batch(run),
            unroll_length=config.unroll_length,
            queue_capacity=max(taken_at_once, config.unroll_queue_size),
            unrolls_per_step=config.batch_size * self._algorithm.block_inference_on_training,
        )
        self._copies = [copy for _, copy in placements if copy is not network]
        self._copy_weights = tf.function(
            lambda: devices.copy_variables(network, self._copies), autograph=False
        )
        self.copy_weights()
        where = job.devices.describe(network)
        self._reporter = Reporter(
            self._logdir,
            store=self._inference.store,
            num_training_envs=run.training_envs,
            num_eval_envs=run.num_eval_envs,
            num_action_repeats=run.num_action_repeats,
            total_frames=config.total_environment_frames,
            start_frames=self.frames,
            train_steps=self.train_steps,
            log_period_s=config.log_period_secs,
            record=job.options,
            tasks=job.env_config if isinstance(job.env_config, Tasks) else None,
            devices=where,
            learners=job.learners,
        )
        logging.info("Devices: %s.", where)
        if idle := job.devices.unused_gpus():
            self._warn("devices", idle)
        here = Run(self._logdir.absolute(), job.options, self._save_copy)
        self._stop = StopSignal(on_stop=self._inference.store.close)
        callbacks = list(job.callbacks)
        if config.video_every:
            stopped = lambda: self._stop.requested  # noqa: E731
            callbacks.append(Clips(config.video_every, self._reporter, stopped))
        self._callbacks = Callbacks(callbacks, here)
        self._last_save = time.monotonic()

    @property
    def frames(self) -> int:
        """Environment frames used so far, including those before the run was resumed."""
        unrolls = self._algorithm.unrolls_consumed - self._start_unrolls
        unroll_frames = self._config.unroll_length * self._run.num_action_repeats
        return self._start_frames + unrolls * unroll_frames

    @property
    def finished(self) -> bool:
        """Whether all frames are used, or a callback has ended the run."""
        ended = self._callbacks.stopped is not None
        return ended or self.frames >= self._config.total_environment_frames

    @property
    def done(self) -> bool:
        """Whether the run is finished, or a stop was requested."""
        return self.finished or self._stop.requested

    def stop(self, reason: str) -> None:
        """Ends `train`, which then saves a checkpoint if it may; other threads may call it.

        Args:
          reason: for the log.
        """
        self._stop.request(reason)

    def train(self, on_trained: Callable[[], object] = lambda: None) -> None:
        """Serves and trains until the run is finished, `stop`, or SIGTERM or SIGINT.

        Saves a checkpoint at the end in any case, unless there was nothing left to train, or a stop
        comes after `WARN_AFTER` skipped steps or more. The signals count only if the main thread
        calls this.

        Args:
          on_trained: called after the last training step, while the server still answers.

        Raises:
          UserError: the server's address is in use or not allowed, or training stalls.
          NotSavedError: that last checkpoint could not be written.
          BaseException: what a callback has raised.
        """
        if self.finished:
            self._end_at_once()
            return
        with self._opened(), self._serving() as server:
            batches = self._batches()
            self._await_experience()
            while not self.done and self._train_step(batches) is not None:
                self._save_if_due()
            self._finish(server, on_trained)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[None]:
        """Handles signals within the context, and closes everything but the server at its end."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stack.enter_context(self._stop)
            try:
                with contextlib.ExitStack() as parts:
                    parts.callback(self._reporter.close)
                    parts.callback(self._algorithm.close)
                    parts.enter_context(self._callbacks.running(lambda: self.finished))
                    yield
            except BaseException:
                self._reporter.phase("failed", self.frames)
                raise
            phase = "done" if self.finished else "stopped"
            self._reporter.phase(phase, self.frames, self._callbacks.stopped)
        logging.info("Ended after %d environment frames.", self.frames)

    @contextlib.contextmanager
    def _serving(self) -> Iterator[grpc.Server]:
        """Serves inference within the context, and reports while the loop waits."""
        with serving(self._job, self._inference) as server:
            try:
                with self._reporter.watching(lambda: server.stats()["functions"]["inference"]):
                    yield server
            finally:
                self._inference.store.close()  # Before the server: no call may wait for training.

    def _end_at_once(self) -> None:
        """Reports that a resumed run had already used all its frames."""
        self._warn("finished", checkpoint_list.finished(self.frames))
        with self._opened():
            if self._config.save_model:
                # The earlier process may have ended just before, and left an older model.
                self.export()

    def export(self, directory: str | os.PathLike[str] | None = None) -> None:
        """Exports the policy, by default to the logdir's place for it."""
        # Of learners that died while exporting. This one holds the lock of the logdir.
        for left in self._logdir.glob(f".{checkpoint_list.MODEL}.*"):
            shutil.rmtree(left, ignore_errors=True)
        model = saved_model.save_model(
            directory or self._logdir / checkpoint_list.MODEL,
            self._algorithm.network,
            self._job.specs,
            self._algorithm.evaluate,
        )
        if model is not None and directory is None:
            checkpoint_list.note_model(model)

    def _train_step(self, batches: Iterator[Any]) -> dict[str, tf.Tensor] | None:
        """Metrics of a training step; None if a stop ended the wait for unrolls."""
        try:
            on_lost_batch = self._inference.store.trained  # Inference may continue.
            metrics, feedback = self._training.run(self._next(batches), on_lost_batch)
        except BATCHES_END as error:
            if self._is_the_end(error):
                return None
            raise
        self.train_steps += 1
        self._algorithm.trained_on(self._config.batch_size)
        self._algorithm.after_step(feedback, self.train_steps)
        self.copy_weights()
        self._inference.store.trained()
        self._report(metrics)
        return metrics

    def _is_the_end(self, error: Exception) -> bool:
        """Whether batches have ended; raises an error of what makes them.

        While the store is open, they do not end by themselves, not even after all frames.
        """
        if self.done and self._inference.store.closed:
            return True
        self._algorithm.check()
        return self.done and isinstance(error, tf.errors.OutOfRangeError)

    def copy_weights(self) -> None:
        """Copies the newest weights to other inference devices, as each training step does."""
        if self._copies:
            self._copy_weights()

    def _next(self, batches: Iterator[Any]) -> Any:
        """What to train on: a batch, or the iterator `batches`; may raise one of `BATCHES_END`."""
        return batches

    def _await_experience(self) -> None:
        """Reports progress until the algorithm has enough experience to train on."""
        while not (self._algorithm.ready() or self.done):
            self._stop.wait(_REPORT_WAITING_S)
            self._report({})

    def _report(self, metrics: dict[str, Any], last: bool = False) -> None:
        report = self._reporter.step(
            self.frames,
            self.train_steps,
            metrics,
            extra=self.logs,
            last=last,
        )
        if report is not None:
            self._callbacks.call("on_report", report)

    def _batches(self) -> Iterator[Any]:
        replicas = self._strategy.num_replicas_in_sync // self._job.learners
        per_replica = self._config.batch_size // replicas
        return devices.batches(
            self._strategy,
            lambda: self._algorithm.dataset(self._inference.store, per_replica, self._encode),
        )

    def _warn(self, source: str, text: str) -> None:
        """Logs a warning, and shows it from now on."""
        logging.warning("%s", text)
        self._reporter.warn(source, text)

    def logs(self) -> dict[str, Any]:
        """Learning rate, and what callbacks and algorithm log besides the metrics of steps."""
        # Not `int(iterations)`: on several devices it is a mirrored variable.
        gradient_steps = int(self._job.optimizer.iterations.numpy())
        learning_rate = float(self._job.learning_rate_fn(gradient_steps))
        return {
            "train/learning_rate": learning_rate,
            **self._callbacks.seconds(),
            **self._algorithm.logs(),
        }

    def _finish(self, server: grpc.Server, on_trained: Callable[[], object]) -> None:
        """Reports, stops taking experience, and saves; tells actors if training is done."""
        self._report({}, last=True)
        on_trained()
        finished = self.finished
        if self.frames >= self._config.total_environment_frames and not self.train_steps:
            self._warn("untrained", _UNTRAINED.format(self.frames))
        self._reporter.phase("saving", self.frames)  # From here on, this explains why actors end.
        self._inference.store.close()
        if not finished:
            server.shutdown()  # Experience from here on would be lost.
            if (skipped := self._reporter.skipped_in_a_row()) >= WARN_AFTER:
                newest = checkpoint_list.saved_frames(self._logdir)
                logging.warning(
                    "Nothing is saved, because the last %d training steps were skipped. The newest "
                    "checkpoint: %s.",
                    skipped,
                    "none" if newest is None else f"{newest:,} frames",
                )
                return
        self.save()
        if problem := self._checkpoints.problem:
            newest = checkpoint_list.saved_frames(self._logdir)
            raise NotSavedError(
                f"The last checkpoint, after {self.frames:,} frames, could NOT be saved "
                f"(newest: {'none' if newest is None else f'{newest:,} frames'}): {problem}."
            )
        # Only once the checkpoint is safe: a restarted learner would need its actors.
        finished = finished and not self._callbacks.failed
        told_by = time.monotonic() + _FAREWELL_S
        if finished:
            self._inference.store.close(done=True)
        if self._config.save_model:
            self.export()
        while finished and server.stats()["connections"] and time.monotonic() < told_by:
            if self._stop.wait(0.05):
                break

    def _save_if_due(self) -> None:
        due = time.monotonic() - self._last_save >= self._config.save_checkpoint_secs
        # Keeps the newest checkpoint good: if steps are skipped, the weights may be the cause.
        if due and not self._reporter.skipped_in_a_row():
            self.save()
            self._last_save = time.monotonic()

    def save(self) -> Path | None:
        """Saves a checkpoint; a failure is reported as a warning, and training continues.

        Returns:
          The checkpoint; None if it could not be written.
        """
        began = time.monotonic()
        self._reporter.phase("saving", self.frames)
        self._prepare_to_save()
        frames = self.frames  # A replay's writer counts on.
        path = self._checkpoints.save(frames, self._notes(frames))
        if path is not None:
            logging.info("Saved %s in %.1f s.", path, time.monotonic() - began)
            self._callbacks.call("on_save", path)
        problem = self._checkpoints.problem
        self._reporter.warn("checkpoint", problem and f"cannot save checkpoints: {problem}")
        if not self._inference.store.closed:
            self._reporter.phase("training", self.frames)
        return path

    def _save_copy(self, directory: Path) -> Path | None:
        """See `Run.save`."""
        self._prepare_to_save()
        frames, manager = self.frames, self._checkpoints
        if directory.resolve() != self._logdir.resolve():
            try:
                manager = checkpoints.CheckpointManager(
                    directory / checkpoint_list.DIRECTORY, self._trackables, 1, self._job.options
                )
            except UserError as error:
                logging.warning("%s", error)
                return None
        return manager.save(frames, self._notes(frames))

    def _checkpoint_manager(self) -> checkpoints.CheckpointManager:
        """That of the run; several learners save into the first one's checkpoints."""
        index = self._job.learner_index
        run = self._logdir.parent if index else self._logdir
        suffix = f"-{index}" if index else ""
        files = self._algorithm.extra_files()
        return checkpoints.CheckpointManager(
            run / checkpoint_list.DIRECTORY,
            self._trackables,
            keep=self._config.checkpoints_to_keep,
            config=self._job.options,
            extra={f"{name}{suffix}": extra for name, extra in files.items()},
        )

    def _prepare_to_save(self) -> None:
        self._saved_steps.assign(self.train_steps)
        self._algorithm.before_save()

    def _restore(self) -> tuple[int, int]:
        """Resumes or starts the run; returns (training steps done, frames done)."""
        frames = self._checkpoints.restore_latest()
        if frames is not None:
            logging.info("Resuming after %d environment frames.", frames)
            self._place_in_schedule(frames)
        elif self._config.init_checkpoint:
            checkpoints.load_weights(
                self._config.init_checkpoint,
                self._algorithm.network,
                self._job.options,
                self._job.network,
            )
            logging.info("Starting from the weights of %s.", self._config.init_checkpoint)
        train_steps = int(self._saved_steps.numpy())
        self._algorithm.start_frames = frames or 0
        self._algorithm.before_first_step(train_steps)
        return train_steps, frames or 0

    def _notes(self, frames: int) -> dict[str, int]:
        """What a checkpoint after so many frames says of the sizes of training steps."""
        return {_GRADIENT_STEPS: self._job.gradient_steps(frames)}

    def _place_in_schedule(self, frames: int) -> None:
        """Moves to these frames in the learning rate's schedule if sizes have changed.

        Schedules count gradient steps, and the saved ones were counted at other sizes.
        """
        saved, now = self._checkpoints.notes, self._notes(frames)
        # Equal sizes leave the count as it is: a replay's ratio holds only approximately.
        if not saved.keys() & now.keys() or saved == now:
            return
        # Adam also corrects the bias of its means by this count. After some thousand steps there is
        # none; before, the next steps may be too large or too small for a while.
        with self._strategy.scope():
            self._job.optimizer.iterations.assign(now[_GRADIENT_STEPS])


def _writable_directory(path: str) -> Path:
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"Cannot create --logdir={path}: {error.strerror}; choose another directory."
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(
            f"Cannot write to --logdir={path}; choose another directory or change its permissions."
        )
    return directory
