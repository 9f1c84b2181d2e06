"""The learner: serves inference, trains, saves, and tells how far it is.

One loop serves every agent (`Learner.train`):

    while frames < total:
        metrics, feedback = training_step(batches)   # waits for unrolls if there are none
        algorithm.after_step(feedback, train_steps)
        ... newest weights to inference devices, report, save ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from seed_rl import grpc
from seed_rl.common.acting import spaces
from seed_rl.common.checkpoints import checkpoints
from seed_rl.common.config.learner_config import LearnerConfig
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import NotSavedError, UserError
from seed_rl.common.inference.inference import CentralInference, InferenceSizes, initialize
from seed_rl.common.inference.saved_model import save_model
from seed_rl.common.learner import devices
from seed_rl.common.learner.algorithm import Algorithm
from seed_rl.common.learner.training import BatchCodec, TrainingStep
from seed_rl.common.monitoring.reporting import Reporter
from seed_rl.common.run_files import checkpoint_list, run_record, saved_run
from seed_rl.common.system.file_lock import LearnerLock
from seed_rl.common.system.stop_signal import StopSignal
from seed_rl.common.types import ACTION_SPACE, Specs

_REPORT_WAITING_S = 0.5
_OP_MARKS = re.compile(r"\{\{.*?\}\} | \[Op:\w+\]$")  # What TensorFlow puts around messages.

CreateOptimizer = Callable[[int], tuple[tf.keras.optimizers.Optimizer, Callable[[Any], Any]]]
"""`create_optimizer(final_iteration)` returns (optimizer, learning_rate_fn)."""


@dataclasses.dataclass(frozen=True)
class TrainingJob:
    """What is to be trained, and with what.

    Attributes:
      algorithm: made in the scope of the training strategy.
      optimizer: likewise.
      learning_rate_fn: training step -> learning rate, for logs.
      clip_norm: largest global norm of the gradients; None leaves them.
      config: all options, written beside checkpoints.
      action_space: of one environment; None if actors are not to compare it with theirs.
      create_env: makes one more environment like the actors'; None if a run is never played.
      environment: the options among them that a saved run must have too, to be continued.
    """

    algorithm: Algorithm
    optimizer: tf.keras.optimizers.Optimizer
    learning_rate_fn: Callable[[Any], Any]
    clip_norm: float | None
    config: dict[str, Any]
    action_space: Any = None
    create_env: Callable[[], Any] | None = None
    environment: dict[str, Any] = dataclasses.field(default_factory=dict)


Train = Callable[[RunConfig, LearnerConfig, devices.Devices, TrainingJob, Specs], None]

_instead: Train | None = None


@contextlib.contextmanager
def instead_of_training(use: Train) -> Iterator[None]:
    """Has `train` hand what a program made to `use`, so that trained agents can be played.

    A program's `main` need not know of it, whoever wrote it.
    """
    global _instead
    _instead = use
    try:
        yield
    finally:
        _instead = None


def train(
    run: RunConfig,
    config: LearnerConfig,
    placement: devices.Devices,
    trained: TrainingJob,
    specs: Specs,
) -> None:
    """Trains to the end of the run: what `assembly.learn` ends with.

    The arguments and errors are those of `Learner` and its `train`.
    """
    if _instead is not None:
        _instead(run, config, placement, trained, specs)
        return
    saved_run.check(run.logdir, trained.environment)
    trained = dataclasses.replace(trained, config=run_record.describe(trained.config))
    run_record.log_options(trained.config)
    learner = Learner(run, config, placement, trained, specs)
    try:
        run_record.write(run.logdir, trained.config)
    except OSError as error:
        logging.warning("Cannot write config.json to %s: %s", run.logdir, error)
    learner.train()


class Learner:
    """One training run, from its start or last checkpoint to the end of its frames."""

    def __init__(
        self,
        run: RunConfig,
        config: LearnerConfig,
        placement: devices.Devices,
        trained: TrainingJob,
        specs: Specs,
    ):
        """Creates all variables and restores the newest checkpoint, if there is one.

        Raises:
          UserError: options that do not fit together, an unwritable logdir or one where another
            learner is at work, a checkpoint of another agent.
        """
        self._run = run
        self._config = config
        self._strategy = placement.training_strategy
        self._batch_codec = BatchCodec(placement.encode, placement.decode)
        self._algorithm = trained.algorithm
        self._learning_rate_fn = trained.learning_rate_fn
        self._specs = specs
        self._action_space = trained.action_space
        self._logdir = _writable_directory(run.logdir)
        self._lock = LearnerLock(self._logdir)

        with self._strategy.scope():
            initialize(self._algorithm, self._algorithm.agent, specs)
            self._saved_steps = tf.Variable(0, dtype=tf.int64, trainable=False, name="train_steps")
        self._training = TrainingStep(
            self._algorithm,
            trained.optimizer,
            self._strategy,
            trained.clip_norm,
            self._batch_codec.decode,
        )
        self._checkpoints = checkpoints.CheckpointManager(
            self._logdir / checkpoint_list.DIRECTORY,
            dict(
                agent=self._algorithm.agent,
                optimizer=trained.optimizer,
                train_steps=self._saved_steps,
                **self._algorithm.checkpointables(),
            ),
            keep=config.checkpoints_to_keep,
            config=trained.config,
            extra=self._algorithm.extra_files(),
        )
        self._train_steps, self._start_frames = self._restore()
        self._start_unrolls = self._num_unrolls()
        placements = placement.place_inference(self._algorithm.agent, self._algorithm.make_agent)
        self._inference = CentralInference(
            self._algorithm,
            specs,
            InferenceSizes(
                run.num_envs,
                run.num_eval_envs,
                config.unroll_length,
                config.queue_capacity(),
                config.max_inference_batch(run),
            ),
            placements,
        )
        self._copies = [a for _, a in placements if a is not self._algorithm.agent]
        self._copy_weights = tf.function(self._copy_weights_eagerly, autograph=False)
        if self._copies:
            self._copy_weights()
        self._reporter = Reporter(
            self._logdir,
            store=self._inference.store,
            num_training_envs=run.num_envs - run.num_eval_envs,
            num_action_repeats=run.num_action_repeats,
            total_frames=config.total_environment_frames,
            start_frames=self.frames,
            log_period_s=config.log_period_secs,
            record=trained.config,
            wandb_project=config.wandb_project,
        )

    @property
    def frames(self) -> int:
        """Environment frames used so far, in former lives of the run with other options too."""
        unrolls = self._num_unrolls() - self._start_unrolls
        unroll_frames = self._config.unroll_length * self._run.num_action_repeats
        return self._start_frames + unrolls * unroll_frames

    def _num_unrolls(self) -> int:
        return self._algorithm.num_unrolls(self._train_steps, self._config.batch_size)

    def train(self) -> None:
        """Serves and trains until the frames are used up, or SIGTERM or SIGINT.

        A checkpoint is saved at the end, in both cases.

        Raises:
          UserError: the server's address is in use or not allowed, or training stands still.
          NotSavedError: that last checkpoint could not be written.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._lock.release)
            stop = stack.enter_context(StopSignal(on_stop=self._inference.store.close))
            try:
                self._serve_and_train(stop)
            except BaseException:
                self._reporter.phase("failed", self.frames)
                raise
            finished = self.frames >= self._config.total_environment_frames
            self._reporter.phase("done" if finished else "stopped", self.frames)
        logging.info("Ended after %d environment frames.", self.frames)

    def _serve_and_train(self, stop: StopSignal) -> None:
        store = self._inference.store
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: self._reporter.close(self.frames))
            stack.callback(self._algorithm.close)
            server = stack.enter_context(self._serving())
            stack.callback(store.close)  # First of all, so that no call waits for training.
            stack.enter_context(self._reporter.watching())
            batches = self._batches()
            self._loop(stop, server, batches)
            self._report(server, {}, last=True)
            store.close()
            server.shutdown()  # Actors would go on, and what they do be lost.
            self._save_last()
            if self._config.save_model:
                save_model(
                    self._logdir / "saved_model",
                    self._algorithm.agent,
                    self._specs,
                    self._algorithm.evaluate,
                )

    def _loop(self, stop: StopSignal, server: grpc.Server, batches: Iterator[Any]) -> None:
        self._await_experience(stop, server)
        last_save = time.monotonic()
        while self.frames < self._config.total_environment_frames and not stop.requested:
            try:
                metrics, feedback = self._training(batches)
            except (
                tf.errors.OutOfRangeError,
                tf.errors.CancelledError,
                tf.errors.InvalidArgumentError,  # What tf.data makes of a closed queue.
            ):
                if stop.requested:
                    return  # It waited for actors when it was told to stop.
                self._algorithm.check()
                raise
            self._train_steps += 1
            self._algorithm.after_step(feedback, self._train_steps)
            if self._copies:
                self._copy_weights()
            self._report(server, metrics)
            due = time.monotonic() - last_save >= self._config.save_checkpoint_secs
            # The newest checkpoint shall be a good one: what has training skip its steps may be
            # in the weights.
            if due and not self._reporter.training_stands_still():
                self._save()
                last_save = time.monotonic()

    def _await_experience(self, stop: StopSignal, server: grpc.Server) -> None:
        """Tells of the run while the algorithm collects what it needs to begin with."""
        while not self._algorithm.ready() and not stop.wait(_REPORT_WAITING_S):
            self._report(server, {})

    def _report(self, server: grpc.Server, metrics: dict[str, Any], last: bool = False) -> None:
        self._reporter.step(
            self.frames,
            self._train_steps,
            metrics,
            served=lambda: server.stats()["functions"]["inference"],
            extra=self._extra_logs,
            last=last,
        )

    def _batches(self) -> Iterator[Any]:
        store, encode = self._inference.store, self._batch_codec.encode
        per_replica = self._config.batch_size // self._strategy.num_replicas_in_sync
        return devices.batches(
            self._strategy, lambda: self._algorithm.dataset(store, per_replica, encode)
        )

    @contextlib.contextmanager
    def _serving(self) -> Iterator[grpc.Server]:
        options = grpc.ServerOptions(
            max_batch_size=self._config.max_inference_batch(self._run),
            batch_timeout_ms=self._config.inference_timeout_ms,
            token=self._run.auth_token(),
            tls_certificate=self._run.tls_certificate,
            tls_key=self._run.tls_key,
        )
        server = grpc.Server([self._run.server_address], options)
        server.bind(
            self._inference.functions,
            isolate_errors=True,
            op_threads=self._config.inference_threads,
        )
        if not options.token and _is_public(self._run.server_address):
            logging.warning(
                "Whoever reaches %s can take part in this run. To keep strangers out, give learner "
                "and actors the same --auth_token_file.",
                self._run.server_address,
            )
        if self._action_space is not None:
            server.set_status({ACTION_SPACE: spaces.describe(self._action_space)})
        try:
            server.start()
        except (tf.errors.UnavailableError, tf.errors.InvalidArgumentError) as error:
            raise UserError(
                f"Cannot serve at --server_address={self._run.server_address}: "
                f"{_OP_MARKS.sub('', error.message)}."
            ) from error
        logging.info("Serving inference at %s.", self._run.server_address)
        try:
            yield server
        finally:
            server.shutdown()

    def _copy_weights_eagerly(self) -> None:
        """Gives inference devices of their own the newest weights."""
        devices.copy_variables(self._algorithm.agent, self._copies)

    def _extra_logs(self) -> dict[str, Any]:
        learning_rate = float(self._learning_rate_fn(self._train_steps))
        return {"train/learning_rate": learning_rate, **self._algorithm.logs()}

    def _save(self) -> None:
        """Saves a checkpoint; if that fails, people are warned and training goes on."""
        began = time.monotonic()
        self._reporter.phase("saving", self.frames)
        self._saved_steps.assign(self._train_steps)
        self._algorithm.before_save()
        path = self._checkpoints.save(self.frames)
        if path is not None:
            logging.info("Saved %s in %.1f s.", path, time.monotonic() - began)
        problem = self._checkpoints.problem
        self._reporter.warn("checkpoint", problem and f"cannot save checkpoints: {problem}")
        self._reporter.phase("training", self.frames)

    def _save_last(self) -> None:
        self._save()
        if self._checkpoints.problem is None:
            return
        newest = checkpoint_list.saved_frames(self._logdir)
        raise NotSavedError(
            f"The last checkpoint, after {self.frames:,} frames, could NOT be saved "
            f"({'newest: none' if newest is None else f'newest: {newest:,} frames'}): "
            f"{self._checkpoints.problem}."
        )

    def _restore(self) -> tuple[int, int]:
        """Continues a run, or starts one; returns the training steps and the frames done."""
        frames = self._checkpoints.restore_latest()
        if frames is not None:
            logging.info("Resuming after %d environment frames.", frames)
        elif self._config.init_checkpoint:
            checkpoints.load_weights(self._config.init_checkpoint, self._algorithm.agent)
            logging.info("Starting from the weights of %s.", self._config.init_checkpoint)
        return int(self._saved_steps.numpy()), frames or 0


def _is_public(address: str) -> bool:
    """Whether other machines may reach it."""
    host = address.rpartition(":")[0].strip("[]")
    return not address.startswith("unix:") and host not in ("localhost", "127.0.0.1", "::1")


def _writable_directory(path: str) -> Path:
    directory = Path(path)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"Cannot make --logdir={path}: {error.strerror}.") from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise UserError(f"Cannot write to --logdir={path}; choose another or mend its rights.")
    return directory
