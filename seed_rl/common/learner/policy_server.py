"""Serves a job's trained policy to actors, without training, for `python -m seed_rl.serve`."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from seed_rl.common.acting.environment_process import InternalRequest
from seed_rl.common.checkpoints import checkpoints
from seed_rl.common.errors import UserError
from seed_rl.common.inference.inference import CentralInference, initialize
from seed_rl.common.inference.inference_store import EpisodeStats
from seed_rl.common.inference.policy import Acted, Policy
from seed_rl.common.learner.playing import Episode, acting
from seed_rl.common.learner.serving import serving
from seed_rl.common.nest import Nest
from seed_rl.common.run_files import checkpoint_list, run_record
from seed_rl.common.system.stop_signal import StopSignal
from seed_rl.common.types import EnvOutput

if TYPE_CHECKING:
    from seed_rl.common.learner.algorithm import Algorithm
    from seed_rl.common.learner.job import TrainingJob

_POLL_S, _REPORT_S = 0.2, 10.0
_RECENT = 100  # Episodes of which the mean is shown.
_DONE_S = 2.0  # How long actors have to hear that all episodes have been played.


@dataclasses.dataclass(frozen=True)
class ServeRequest(InternalRequest):
    """What to serve; `seed_rl.serve` passes it to the program as the JSON of `--play_request`.

    Attributes:
      weights: a checkpoint, or a logdir, whose newest checkpoint is served.
      results: file to which the episodes that have ended are written at the end, one JSON line
        each.
      episodes: how many to serve; None: no end.
      every: write every episode, rather than the last 100.
      sampled: act as environment 0 does in training, rather than as in evaluation.
      refresh_s: seconds between checks for a newer checkpoint; 0: never.
    """

    weights: str
    results: str
    episodes: int | None = None
    every: bool = False
    sampled: bool = False
    refresh_s: float = 10.0


class _Acting(Policy):
    """The policy of an algorithm, for environments that are not trained on."""

    def __init__(self, algorithm: Algorithm, sampled: bool):
        self._act = acting(algorithm, sampled)
        self.network = algorithm.network

    def act(
        self,
        network: tf.Module,
        env_ids: tf.Tensor,
        prev_actions: Nest,
        env_outputs: EnvOutput,
        agent_state: Nest,
    ) -> Acted:
        """See the base class."""
        action, state = self._act(prev_actions, env_outputs, agent_state)
        return Acted(action, (), state)


def serve(job: TrainingJob, request: ServeRequest) -> None:
    """Serves until SIGTERM, SIGINT or the last episode, and loads newer checkpoints meanwhile.

    Raises:
      UserError: there are no weights, they do not fit, or the address cannot be used.
    """
    algorithm = job.algorithm
    initialize(algorithm, algorithm.network, job.specs)
    weights = _Weights(job, Path(request.weights))
    weights.refresh()
    (device, _), *_ = job.devices.place_inference(algorithm.network, algorithm.make_network)
    inference = CentralInference(
        _Acting(algorithm, request.sampled),
        job.specs,
        [(device, algorithm.network)],
        num_envs=job.run.num_envs,
        num_eval_envs=job.run.num_envs,
        max_batch=job.config.max_inference_batch(job.run),
        unroll_length=1,
        queue_capacity=1,
    )
    score = _Score(request, job.run.num_envs)
    with StopSignal(on_stop=inference.store.close) as stop, serving(job, inference):
        checked = reported = time.monotonic()
        while not (stop.requested or score.complete):
            stop.wait(_POLL_S)
            now = time.monotonic()
            score.add(inference.store.episodes())
            if request.refresh_s and now - checked >= request.refresh_s:
                checked = now
                weights.refresh()
            if now - reported >= _REPORT_S:
                reported = now
                silence = inference.store.silence()
                playing = np.count_nonzero(silence < _REPORT_S)
                news = f"{playing} active environments; {score}; {weights}{score.missing(silence)}"
                print(news, file=sys.stderr)
        inference.store.close(done=score.complete)
        if score.complete:
            stop.wait(_DONE_S)
    score.write()


class _Weights:
    """The weights of a run's newest checkpoint."""

    def __init__(self, job: TrainingJob, path: Path):
        self._job, self._path = job, path
        self._newest: Path | None = None  # When it was loaded: it may have been damaged.
        self._loaded: Path | None = None

    def refresh(self) -> None:
        """Loads the newest intact checkpoint, if there is a new one.

        Inference may run meanwhile: as in training, one batch may see the old values of some
        variables and the new ones of others.

        Raises:
          UserError: the first checkpoint does not fit, or none is intact. Later failures are only
            logged: the run may be replacing checkpoints.
        """
        saved = checkpoint_list.list_checkpoints(self._path / checkpoint_list.DIRECTORY)
        newest = saved[-1].path if saved else self._path
        if newest == self._newest:
            return
        job = self._job
        try:
            options = run_record.describe(job.options)
            network, others = job.algorithm.network, job.algorithm.checkpointables()
            loaded = checkpoints.load_weights(self._path, network, options, job.network, others)
        except (UserError, OSError, tf.errors.OpError) as error:
            if self._loaded is None:
                raise
            logging.warning("Still serving %s: %s", self._loaded.name, error)
            return
        if self._loaded not in (None, loaded):
            print(f"now serving {loaded.name}", file=sys.stderr)
        self._newest, self._loaded = newest, loaded

    def __str__(self) -> str:
        return self._loaded.name if self._loaded else ""


class _Score:
    """The episodes that count: equally many of each environment, or short ones would count more."""

    def __init__(self, request: ServeRequest, num_envs: int):
        self._results = request.results
        self._count = 0
        self._ended: deque[Episode] = deque(maxlen=None if request.every else _RECENT)
        self._limited = request.episodes is not None
        episodes = request.episodes or 0
        self._left = episodes // num_envs + (np.arange(num_envs) < episodes % num_envs)

    @property
    def complete(self) -> bool:
        """Whether all episodes that were asked for have ended."""
        return self._limited and not self._left.any()

    def add(self, ended: EpisodeStats) -> None:
        """Adds episodes that have ended."""
        for i, env_id in enumerate(ended.env_ids):
            if self._limited and not self._left[env_id]:
                continue
            self._left[env_id] -= 1
            self._count += 1
            success = float(ended.successes[i])
            episode = Episode(
                int(ended.num_steps[i]),
                float(ended.returns[i]),
                float(ended.raw_returns[i]),
                None if np.isnan(success) else success,
            )
            self._ended.append(episode)

    def write(self) -> None:
        """Writes the file of the request."""
        with open(self._results, "w", encoding="utf-8") as results:
            for episode in self._ended:
                print(json.dumps(dataclasses.asdict(episode)), file=results)

    def missing(self, silence: np.ndarray) -> str:
        """What to say if all episodes that are left are of environments that nobody has stepped.

        Args:
          silence: see `InferenceStore.silence`.
        """
        left, stepped = np.flatnonzero(self._left), np.flatnonzero(~np.isnan(silence))
        if not self._limited or self.complete or not stepped.size:
            return ""
        if np.intersect1d(left, stepped).size:
            return ""
        return (
            f"; waits for environments {left[0]} to {left[-1]}, which no actor steps: start more "
            f"actors, or serve with --num_envs={stepped[-1] + 1}"
        )

    def __str__(self) -> str:
        if not self._count:
            return "no episode has ended yet"
        mean = np.mean([episode.score for episode in list(self._ended)[-_RECENT:]])
        return f"{self._count:,} episodes, mean return of the last {mean:.2f}"
