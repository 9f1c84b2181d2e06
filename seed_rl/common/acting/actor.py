"""The actor: steps environments and requests actions from the learner.

An actor holds no network and no weights. It steps k environments in one batch (or in several, in
turn), with one inference call per step, until it receives a stop signal or the learner answers that
training is done (OUT_OF_RANGE). When the connection to the learner breaks, it reconnects and begins
a new *life*: its environments are reset and its calls carry a new run id, so that the learner never
joins steps from before and after (the last call may or may not have arrived).
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import random
import sys
import threading
import time
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

from seed_rl.common.acting import environment_process, rewards
from seed_rl.common.acting.actor_clock import ActorClock
from seed_rl.common.acting.batched_env import EnvironmentFailure
from seed_rl.common.acting.env_group import CreateBatch, Environments, env_groups
from seed_rl.common.acting.environment_agreement import OtherEnvironment, check_inference
from seed_rl.common.acting.environment_process import EnvironmentRequest
from seed_rl.common.config.options import option
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import ExitCode, UserError
from seed_rl.common.system import scheduling
from seed_rl.common.system.backoff import backoff_s
from seed_rl.common.system.stop_signal import StopSignal
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import (
    CallError,
    CallTooLargeError,
    ClientError,
    ConnectionLost,
    StatusCode,
    WireError,
)
from seed_rl.grpc.numpy_client import Client

# Time limits of the first and of later attempts to connect: slow networks need more time, but an
# attempt delays a stop signal.
_ATTEMPT_S, _LATER_ATTEMPT_S = 2.0, 4.0
_FIRST_ATTEMPTS = 4
_STOP_GRACE_S = 5.0  # After a stop signal, for a step in progress and for closing environments.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


class ActorEnded(Exception):
    """A newer actor took over the environments, or the learner was unreachable for too long."""

    def __init__(self, message: str, code: ExitCode):
        super().__init__(message)
        self.code = code


@dataclasses.dataclass(frozen=True)
class ActorConfig(RunConfig):
    """Actor: connection to the learner, environments, and timing logs."""

    connect_timeout_s: float = option(
        600.0, "Seconds to wait for the learner at start-up before giving up.", minimum=0
    )
    reconnect_timeout_s: float = option(
        600.0, "Seconds to wait for a lost learner before giving up.", minimum=0
    )
    num_actors_with_summaries: int = option(
        1,
        "Number of actors, counted from task 0, that log their timing. All actors with --task=-1 "
        "do, unless this is 0.",
        minimum=0,
    )
    env_groups: int = option(
        1,
        "Groups into which an actor splits its environments: one steps while the others wait for "
        "their actions. 2 hides the time of a call, if there are as many cores as actors.",
        minimum=1,
    )
    actor_log_period_s: float = option(
        60.0, "Seconds between an actor's timing logs; 0 turns them off.", minimum=0
    )


def are_summaries_enabled(config: ActorConfig) -> bool:
    """Whether this actor logs its timing."""
    return config.actor_log_period_s > 0 and max(config.task, 0) < config.num_actors_with_summaries


def actor_loop(
    create_env_fn: Callable[[int, Any], Any],
    config: ActorConfig,
    env_config: Any = None,
    *,
    create_batch: CreateBatch | None = None,
) -> None:
    """Runs an actor until training is done, SIGTERM or SIGINT, as a batch process (`scheduling`).

    If `seed-rl play` or `evaluate` started the program (`--play_request`), serves environments.

    Args:
      create_env_fn: `create_env_fn(env_id, env_config)` returns a Gymnasium (or old gym)
        environment.
      config: the actor's options.
      env_config: passed to both functions.
      create_batch: `create_batch(env_ids, env_config)` returns all environments as
        one `BatchedEnv`, or None to have `create_env_fn` called for each.

    Raises:
      UserError: the options, the spaces or the learner's answers do not match.
      SystemExit: with an `ExitCode`, after one line on standard error: an environment raised, a
        newer actor took over the environments, or the learner was unreachable for too long. Or the
        actor was stopped and there is a `stopped_exit_code`.
    """
    playing = config.play_request
    # absl's default hides the actor's logs.
    if logging.get_verbosity() == logging.WARNING and not playing:
        logging.set_verbosity(logging.INFO)
    try:
        if playing:
            request = EnvironmentRequest.from_json(playing)
            environment_process.serve(
                lambda index: create_env_fn(config.played_env_id(index), env_config), request
            )
            return
        done = run_actor(Environments(create_env_fn, env_config, create_batch), config)
    except EnvironmentFailure as error:
        logging.exception("Actor %d: an environment failed.", config.task)
        _exit(f"{error} {error.__cause__!r}", ExitCode.ENVIRONMENT_FAILED)
    except ActorEnded as error:
        _exit(str(error), error.code)
    logging.info("Actor %d: %s.", config.task, "training is done" if done else "stopped")
    if config.stopped_exit_code and not done:
        raise SystemExit(config.stopped_exit_code)


def run_actor(environments: Environments, config: ActorConfig) -> bool:
    """As `actor_loop`, but raises the exception that ends the actor.

    Returns:
      Whether training is done.

    Raises:
      ActorEnded, EnvironmentFailure, UserError: the actor cannot continue.
    """
    # Before creating environments, whose threads must inherit it.
    scheduling.use_batch_scheduling()
    actor = Actor(config)
    ended = threading.Event()

    def end_soon() -> None:
        actor.close()
        if not ended.wait(_STOP_GRACE_S):
            logging.error(
                "Actor %d: a step or a connection attempt does not return; exiting anyway.",
                config.task,
            )
            os._exit(config.stopped_exit_code)

    with StopSignal(end_soon) as stop:
        try:
            return actor.run(environments, stop)
        finally:
            actor.close()
            ended.set()


def _exit(message: str, code: ExitCode) -> typing.NoReturn:
    print(f"error: {message}", file=sys.stderr, flush=True)
    raise SystemExit(int(code))


class Actor:
    """Connects, runs lives, and reconnects."""

    def __init__(self, config: ActorConfig):
        for flag in ("tls_ca", "tls_cert", *(("tls_key",) if config.tls_cert else ())):
            if (path := getattr(config, flag)) and not os.access(path, os.R_OK):
                raise UserError(f"--{flag}={path} cannot be read.")
        self._config = config
        config.auth_token()  # Reports unreadable files immediately.
        period_s = config.actor_log_period_s if are_summaries_enabled(config) else None
        size = config.env_batch_size
        self._clock = ActorClock(config.task, size // config.env_groups, period_s)
        self._env_ids = np.zeros(0, np.int32)  # None yet.
        if not self._claims_ids:
            self._env_ids = np.arange(config.task * size, (config.task + 1) * size, dtype=np.int32)
        self._client: Client | None = None
        self._seed = config.seed
        # Time of the learner's last answer; before the first, time of starting to connect.
        self._last_answer = time.monotonic()
        self._timeout_s = config.connect_timeout_s
        self._pauses = 0
        self._reason = ""  # Reason of the last pause.

    def run(self, environments: Environments, stop: StopSignal) -> bool:
        """Runs lives until the stop signal, or until training is done.

        Args:
          environments: how they are created.
          stop: ends the actor.

        Returns:
          Whether training is done.

        Raises:
          ActorEnded, EnvironmentFailure, UserError: the actor cannot continue.
        """
        self._stop = stop
        while not stop.requested:
            num_groups = self._config.env_groups
            try:
                if self._claims_ids and not len(self._env_ids):
                    self._claim_ids()
                with env_groups(environments, self._env_ids, num_groups) as self._groups:
                    return self._run_lives(environments.config)
            except OtherEnvironment as learner:
                environments = dataclasses.replace(environments, config=learner.config)
                self._seed = self._config.seed
            except ClientError as error:  # While asking for ids.
                self._recover(error)
            except ActorEnded as error:
                if not self._claims_ids or error.code != ExitCode.SUPERSEDED:
                    raise
                self._env_ids = self._env_ids[:0]  # Reassigned after a long silence.
        return False

    @property
    def _claims_ids(self) -> bool:
        return self._config.task < 0

    def _claim_ids(self) -> None:
        """Asks the learner for environments."""
        client = self._client = self._connect()
        try:
            if "claim" not in client.functions:
                raise UserError("This learner does not hand out environments: give --task=N.")
            self._env_ids = client.functions["claim"](np.int32(self._config.env_batch_size))
        finally:
            client.close()
        if not len(self._env_ids):
            raise CallError(
                StatusCode.RESOURCE_EXHAUSTED,
                f"fewer than {self._config.env_batch_size} of the learner's environments "
                "(--num_envs) are free; those of a dead actor become free after a minute",
            )

    def _recover(self, error: ClientError) -> None:
        """Waits before the next attempt to connect, or raises an exception that ends the actor."""
        if not self._stop.requested:
            self._raise_if_fatal(error)
            self._pause(error)

    def _run_lives(self, env_config: Any) -> bool:
        """Runs lives in environments with the options `env_config`; see `run`."""
        self._last_answer = time.monotonic()
        while not self._stop.requested:
            self._reset()
            try:
                self._client = self._connect()
                check_inference(self._client, self._groups[0].env, env_config)
                self._run_life(self._client)
            except ClientError as error:
                if isinstance(error, CallError) and error.code == StatusCode.OUT_OF_RANGE:
                    return True
                self._recover(error)
            finally:
                self.close()
        return False

    def close(self) -> None:
        """Closes the connection; other threads may call it to interrupt a waiting call."""
        client = self._client
        if client is not None:
            client.close()

    def _reset(self) -> None:
        """Resets the environments unless they are at the start of an episode already."""
        began = time.monotonic()
        for group in self._groups:
            group.reset(self._seed)
        self._seed = None  # Seeding again would repeat the same episodes.
        self._last_answer += time.monotonic() - began

    def _connect(self) -> Client:
        config = self._config
        try:  # Read again each time: the secrets of a run may change while its learner is away.
            token = config.auth_token()
        except UserError as error:
            raise ConnectionLost(str(error)) from None
        attempt_s = _ATTEMPT_S if self._pauses < _FIRST_ATTEMPTS else _LATER_ATTEMPT_S
        options = ClientOptions(
            token=token,
            tls_ca=config.tls_ca,
            tls_cert=config.tls_cert,
            tls_key=config.tls_key if config.tls_cert else None,
            connect_timeout_s=min(attempt_s, max(self._remaining_s(), 0.1)),
        )
        try:
            return Client(config.server_address, options)
        except CallError as error:
            if error.code == StatusCode.FAILED_PRECONDITION:
                raise UserError(f"Cannot use this learner: {error.message}.") from error
            raise
        except WireError as error:
            raise UserError(f"Cannot use this learner: {error}") from error

    def _run_life(self, client: Client) -> None:
        """Runs one life: from first observations until the stop signal or an exception."""
        clock, stop = self._clock, self._stop
        if stop.requested:
            return
        run_id = _new_run_id()
        for group in self._groups:
            group.begin(client.functions["inference"], run_id)
        turns = itertools.cycle(self._groups)
        group = next(turns)
        actions = group.actions()
        self._record_answer()
        clock.start()
        while not stop.requested:
            group.step(actions)
            clock.stepped()
            try:
                group.send()
                group = next(turns)
                actions = group.actions()
            finally:  # The timeout begins when the learner is lost, however long the call took.
                self._last_answer = clock.answered()

    def _record_answer(self) -> None:
        """Records that the learner answers."""
        logging.info(
            "Actor %d: %s, learner at %s.",
            self._config.task,
            self._named_environments(),
            self._config.server_address,
        )
        self._last_answer = time.monotonic()
        self._timeout_s = self._config.reconnect_timeout_s
        self._pauses = 0
        self._reason = ""

    def _remaining_s(self) -> float:
        return self._last_answer + self._timeout_s - time.monotonic()

    def _pause(self, error: ClientError) -> None:
        """Waits before the next attempt, longer each time; raises when the time is up."""
        remaining = self._remaining_s()
        address = self._config.server_address
        what, reason, advice = "no learner", str(error), ""
        if not isinstance(error, CallError):
            advice = " Check that it is running and that --server_address is right."
        elif error.code == StatusCode.UNAUTHENTICATED:
            what = "refused by the learner"
            reason = (
                f"its token is not the one in --auth_token_file={self._config.auth_token_file}: "
                "copy the learner's file there; it is read again for each attempt"
            )
        else:
            what, reason = "cannot work with the learner", error.message
        if remaining <= 0:
            raise ActorEnded(
                f"{what.capitalize()} at {address} for {self._timeout_s:g} s, giving up "
                f"({reason}).{advice}",
                ExitCode.NO_LEARNER,
            )
        level = logging.INFO if reason == self._reason else logging.WARNING
        self._reason = reason
        logging.log(
            level,
            "Actor %d: %s at %s, retrying for another %.0f s (%s).",
            self._config.task,
            what,
            address,
            remaining,
            reason,
        )
        pause = self._next_pause_s()
        self._pauses += 1
        # Many actors lose the same learner at once and must not all reconnect at once.
        self._stop.wait(min(pause * random.uniform(0.5, 1.0), remaining))

    def _next_pause_s(self) -> float:
        return backoff_s(self._pauses + 1, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)

    def _raise_if_fatal(self, error: ClientError) -> None:
        """Ends the actor if retrying cannot help."""
        if not isinstance(error, CallError):
            return
        if isinstance(error, CallTooLargeError):
            raise UserError(
                f"The observations of {self._named_environments()} are too large for one call: "
                f"{error.message}. Lower --env_batch_size (ENVS_PER_ACTOR of run_local.sh), or "
                "raise --env_groups, or make observations smaller."
            )
        code = error.code
        if code == StatusCode.FAILED_PRECONDITION:
            raise ActorEnded(
                f"{error.message} Another actor runs {self._named_environments()}. Give every "
                "actor a different --task.",
                ExitCode.SUPERSEDED,
            ) from error
        # A new token may not have been copied yet.
        rotating = code == StatusCode.UNAUTHENTICATED and self._config.auth_token_file
        if rotating and self._remaining_s() > self._next_pause_s():
            return
        if code in (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED):
            raise UserError(
                f"The learner at {self._config.server_address} refuses this actor: "
                f"{error.message}. Start both with the same --auth_token_file."
            )
        if code in (StatusCode.INVALID_ARGUMENT, StatusCode.UNIMPLEMENTED):
            raise UserError(
                f"The learner at {self._config.server_address} rejects the steps of "
                f"{self._named_environments()}: {error.message}. Start learner and actors with "
                "the same options (--num_envs, --env_batch_size and the environment's)."
            )

    def _named_environments(self) -> str:
        if not len(self._env_ids):  # No ids yet.
            return "this actor's environments"
        return f"environments {rewards.describe_ids(self._env_ids)}"


def _new_run_id() -> int:
    """A random number from 1 to 2^63 - 1; 0 means no life."""
    return (int.from_bytes(os.urandom(8), "little") >> 1) or 1
