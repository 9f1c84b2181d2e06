"""Whole experiments from Python: a learner and its actors in one call, without flags.

    job = create_job(create_env, create_agent, run=RunConfig(num_envs=8, env_batch_size=4), ...)
    result = experiment.run(job)
    print(result.returns[-100:].mean())

docs/library.md is a tour.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seed_rl.common.acting.batched_env import EnvironmentFailure
from seed_rl.common.acting.env_group import CreateBatch, Environments
from seed_rl.common.acting.local_actors import KINDS, LocalActors, actor_configs
from seed_rl.common.callbacks import Callback, Report
from seed_rl.common.errors import UserError
from seed_rl.common.inference.acting_policy import ActingPolicy, load_policy
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.learner.learner import Learner
from seed_rl.common.learner.playing import trained_policy
from seed_rl.common.run_files import checkpoint_list, progress, returns_log
from seed_rl.common.run_files.returns_log import EpisodeRow

__all__ = [
    "ActingPolicy",
    "EnvironmentFailure",
    "EpisodeRow",
    "PrintProgress",
    "Result",
    "load_policy",
    "read_result",
    "run",
    "trained_policy",
]

_POLL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Result:
    """The results of a run, from its logdir.

    Attributes:
      logdir: the directory.
      frames: environment frames used.
      finished: whether all frames are used or a callback ended the run; otherwise it can be
        continued.
      episodes: all finished episodes, in the order in which they ended.
      checkpoint: the newest checkpoint, if any.
      model: the exported policy, if any, for `load_policy`.
    """

    logdir: Path
    frames: int
    finished: bool
    episodes: tuple[EpisodeRow, ...]
    checkpoint: Path | None
    model: Path | None

    @property
    def returns(self) -> np.ndarray:
        """<float64>[episodes] returns of the training episodes."""
        return np.array([row.episode_return for row in self.episodes if not row.evaluation])


class PrintProgress(Callback):
    """Prints a line per report."""

    def on_report(self, report: Report) -> None:
        print(report.progress.line(), flush=True)


def run(
    job: TrainingJob,
    *,
    actors: str = "threads",
    create_batch: CreateBatch | None = None,
    callbacks: Sequence[Callback] = (PrintProgress(),),
) -> Result:
    """Trains to the end of the run, with `num_envs / env_batch_size` actors.

    Learner and actors use a private socket; `server_address` and authentication options have no
    effect. May be called again, from any thread, with a new job each time. A job with the logdir of
    a stopped run continues it.

    Ctrl-C stops the run and saves a checkpoint before KeyboardInterrupt is raised; a second one
    does not wait for that. No other signal is handled.

    Args:
      job: from the `create_job` of an agent.
      actors: "threads" of this process, or "processes", which share no memory with it.
      create_batch: `create_batch(env_ids, env_config)` returns all environments of an
        actor as one `BatchedEnv`, or None to have the job's function called for each.
      callbacks: called in the training thread, not the calling one; an exception ends the run and
        is raised here. The default prints a line every `log_period_secs`.

    Raises:
      UserError: incompatible options, or any other that `TrainingJob.train` raises.
      EnvironmentFailure: an environment raised; its exception is the cause.
      KeyboardInterrupt: the user pressed Ctrl-C.
    """
    if actors not in KINDS:
        raise UserError(f"actors={actors!r} is not one of {', '.join(map(repr, KINDS))}.")
    environments = Environments(job.create_env_fn, job.env_config, create_batch)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="seed_rl_"))
        options = dataclasses.replace(
            job.run,
            server_address=f"unix:{folder}/socket",
            auth_token_file=None,
            tls_ca=None,
            tls_cert=None,
            tls_certificate=None,
            tls_key=None,
        )
        thread = _LearnerThread()
        group = LocalActors(
            actors, environments, actor_configs(options), lambda: thread.stop("An actor failed")
        )
        thread.actors = group
        called = (*job.callbacks, *callbacks)
        job_here = dataclasses.replace(job, run=options, callbacks=called)
        thread.learner = job_here.create_learner()
        stack.callback(group.kill)
        try:
            thread.start()
            if not thread.learner.finished:
                group.start()
            # Not `join`: once interrupted by Ctrl-C, it considers the thread ended (Python 3.11).
            while not thread.ended.wait(_POLL_S):  # Without a timeout, Ctrl-C would wait.
                pass
        finally:
            group.leave(0.0)
            thread.stop("Interrupted")
            thread.join()  # It may be saving.
            group.stop()
    if error := group.error or thread.error:
        raise error
    return read_result(job.run.logdir)


def read_result(logdir: str | os.PathLike[str]) -> Result:
    """The result of a run, even if it was interrupted or is still running.

    Raises:
      UserError: there is no run in `logdir`.
    """
    directory = Path(logdir)
    report = progress.read(directory)
    if report is None:
        raise UserError(f"There is no run in {logdir}: no {progress.FILE_NAME}.")
    try:
        episodes = returns_log.read(directory / returns_log.FILE_NAME)
    except OSError:
        episodes = []
    checkpoints = checkpoint_list.list_checkpoints(directory / checkpoint_list.DIRECTORY)
    model = directory / checkpoint_list.MODEL
    return Result(
        logdir=directory,
        frames=report.frames,
        finished=report.phase == "done",
        episodes=tuple(episodes),
        checkpoint=checkpoints[-1].path if checkpoints else None,
        model=model if model.exists() else None,
    )


class _LearnerThread(threading.Thread):
    """Trains; TensorFlow's waits in the main thread would delay Ctrl-C."""

    def __init__(self) -> None:
        super().__init__(name="learner", daemon=True)
        self.learner: Learner | None = None
        self.error: BaseException | None = None
        self.actors: LocalActors | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        assert self.learner is not None and self.actors is not None
        try:
            # Actors leave first: they would warn of a lost learner.
            self.learner.train(self.actors.leave)
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def stop(self, reason: str) -> None:
        """Makes the learner save and end, if it has not ended."""
        if self.learner is not None and self.is_alive():
            self.learner.stop(reason)
