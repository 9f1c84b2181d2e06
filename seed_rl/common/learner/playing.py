"""Plays a job's agent instead of training it, for `seed-rl play` and `evaluate`."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from seed_rl.common.acting.batched_env import BatchedEnv, playing_seed
from seed_rl.common.acting.environment_process import EnvironmentProcess, InternalRequest
from seed_rl.common.checkpoints import checkpoints
from seed_rl.common.inference.acting_policy import ActingPolicy, load_policy
from seed_rl.common.inference.inference import initialize
from seed_rl.common.inference.saved_model import Act
from seed_rl.common.nest import Nest
from seed_rl.common.run_files import run_record
from seed_rl.common.system import terminal
from seed_rl.common.types import EnvOutput

if TYPE_CHECKING:
    from seed_rl.common.learner.algorithm import Algorithm
    from seed_rl.common.learner.job import TrainingJob

_NEWS_S = 10.0  # Agents may get stuck, and not every environment has a time limit.


@dataclasses.dataclass(frozen=True)
class Episode:
    """A finished episode.

    Attributes:
      steps: actions taken.
      reward: sum of the rewards, not clipped.
      score: sum of the unshaped rewards; equal to `reward` if the environment reports none.
      success: 1 if it reached its goal (`info["is_success"]`), 0 if not; None: not known.
    """

    steps: int
    reward: float
    score: float
    success: float | None = None


@dataclasses.dataclass(frozen=True)
class PlayRequest(InternalRequest):
    """What to play; `seed_rl.play` passes it to the program as the JSON of `--play_request`.

    Attributes:
      results: file for the episodes, one JSON line each, written as they end.
      environment: command of the environment's process, see `EnvironmentProcess`.
      episodes: how many to play.
      steps: number of steps after which to stop, even within an episode; None: no limit.
      weights: a checkpoint, or a directory of them; None: use `model`.
      model: an exported model.
      sampled: act as environment 0 does in training, rather than as in evaluation.
      seed: makes the environment repeatable.
    """

    results: str
    environment: Sequence[str]
    episodes: int
    steps: int | None = None
    weights: str | None = None
    model: str | None = None
    sampled: bool = False
    seed: int | None = None


def play(job: TrainingJob, request: PlayRequest) -> None:
    """Plays and writes each episode to `request.results` as it ends; Ctrl-C stops early.

    Raises:
      SystemExit: the environment failed, and its process printed why.
      UserError: its process was killed, or the weights do not fit.
    """
    with (
        EnvironmentProcess(request.environment) as env,
        open(request.results, "w", encoding="utf-8") as results,
    ):
        # While the other process starts.
        if request.weights is None:
            policy = load_policy(str(request.model))
        else:
            policy = trained_policy(job, request.weights, request.sampled)
        with contextlib.suppress(KeyboardInterrupt), terminal.interrupt_requests() as interrupted:
            taken = itertools.count()
            limit = math.inf if request.steps is None else request.steps

            def stopped() -> bool:
                return interrupted() or next(taken) >= limit

            greedy = request.weights is not None and not request.sampled
            hint = ". If the agent repeats itself, play with --sampled" if greedy else ""
            played = play_episodes(env, policy, request.seed, request.episodes, stopped, hint)
            for number, episode in enumerate(played, 1):
                print(json.dumps(dataclasses.asdict(episode)), file=results, flush=True)
                print(
                    f"episode {number}/{request.episodes}: return {episode.reward:g}, "
                    f"{episode.steps} steps",
                    file=sys.stderr,
                )
            if not interrupted():
                return
        print("interrupted", file=sys.stderr)


def trained_policy(
    job: TrainingJob, weights: str | os.PathLike[str] | None = None, sampled: bool = False
) -> ActingPolicy:
    """The policy of a job, with its current weights or saved ones.

    Args:
      job: from the `create_job` of an agent.
      weights: a checkpoint, a directory of them, or a logdir; None: as they are in `job`.
      sampled: whether to act as environment 0 does in training, rather than as in evaluation.

    Raises:
      UserError: the weights are missing or do not fit.
    """
    algorithm, network = job.algorithm, job.algorithm.network
    initialize(algorithm, network, job.specs)
    if weights is not None:
        config = run_record.describe(job.options)
        others = algorithm.checkpointables()
        checkpoints.load_weights(os.fspath(weights), network, config, job.network, others)
    act = tf.function(acting(algorithm, sampled), autograph=False)
    return ActingPolicy(act, network.initial_state, job.specs)


def acting(algorithm: Algorithm, sampled: bool) -> Act:
    """Acts as in evaluation; or, if `sampled`, as environment 0 does in training."""
    if not sampled:
        return algorithm.evaluate

    def act(prev_actions: Nest, env_outputs: EnvOutput, agent_state: Nest) -> tuple[Nest, Nest]:
        env_ids = tf.zeros_like(env_outputs.episode_step)
        acted = algorithm.act(algorithm.network, env_ids, prev_actions, env_outputs, agent_state)
        return acted.action, acted.agent_state

    return act


def play_episodes(
    env: BatchedEnv | EnvironmentProcess,
    policy: ActingPolicy,
    seed: int | None,
    episodes: int,
    stopped: Callable[[], bool] = lambda: False,
    hint: str = "",
) -> Iterator[Episode]:
    """Plays like an actor and the learner's inference together, and yields episodes as they end.

    Each of k environments plays episodes / k of them, whichever end first: otherwise short episodes
    would be overrepresented.

    Args:
      env: of k environments; not closed.
      policy: acts in it.
      seed: makes the episodes repeatable; they are not those of training with this seed. None:
        different ones each time.
      episodes: how many to play.
      stopped: asked before each step.
      hint: printed after the length of an episode that takes long.
    """
    observation = env.reset(playing_seed(seed))
    k = len(tf.nest.flatten(observation)[0])
    zeros, false = np.zeros(k, np.float32), np.zeros(k, np.bool_)
    env_output = EnvOutput(zeros, false, observation, false, np.zeros(k, np.int32))
    state = policy.initial_state(k)
    left = episodes // k + (np.arange(k) < episodes % k)
    steps, rewards, scores = np.zeros(k, np.int64), np.zeros(k), np.zeros(k)
    last_news = time.monotonic()
    while left.any() and not stopped():
        if time.monotonic() - last_news > _NEWS_S:
            last_news = time.monotonic()
            print(f"{steps.max():,} steps so far in the longest episode{hint}", file=sys.stderr)
        # Copied, because the next step writes into the same arrays.
        tensors = tf.nest.map_structure(lambda a: tf.constant(np.array(a)), env_output)
        action, state = policy.act(tensors, state)
        step = env.step(action)
        # Whole games, as in evaluation: a lost life may end only the learner's episode.
        done = step.done & (step.abandoned | (step.episode_step == 0))
        env_output = EnvOutput(
            step.reward, done, step.observation, step.abandoned, step.episode_step
        )
        rewards += step.reward
        scores += step.raw_reward
        steps += ~step.abandoned
        for i in np.flatnonzero(done):
            if left[i]:
                left[i] -= 1
                last_news = time.monotonic()
                success = None if step.success is None else float(step.success[i])
                known = success is not None and not np.isnan(success)
                yield Episode(
                    int(steps[i]), float(rewards[i]), float(scores[i]), success if known else None
                )
            steps[i], rewards[i], scores[i] = 0, 0.0, 0.0
