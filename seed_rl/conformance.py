"""Checks a client of any language: `seed-rl conformance -- COMMAND ...`.

COMMAND must be an actor that plays CartPole-v1 and takes an actor's flags, which are appended to it
(docs/wire_actor.md). The learner is a real server with a real inference store; a script takes the
place of the network. It knows CartPole's equations, so it notices steps that are lost, doubled,
swapped between environments or not caused by its actions.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from rich.console import Console
from rich.table import Table

from seed_rl.common.acting import spaces
from seed_rl.common.acting.actor import ExitCode
from seed_rl.common.errors import UserError
from seed_rl.common.system import chatter
from seed_rl.common.types import ACTION_SPACE, EnvOutput

ENV_IDS = (2, 3)
"""The environments of the client under test: those of the second of two actors."""

_SILENCE = np.array([0, 0, np.nan, np.nan])  # The client's are free.
_LIMIT = 500  # Steps until CartPole-v1 truncates.
_START = 0.05  # Largest magnitude of a first observation.
_TOLERANCE = 1e-4
_OTHER_LIFE = 7  # Run id of an actor that takes the environments over.
_STOP_GRACE_S, _GIVE_UP_S = 6.0, 3.0
_REFUSED = UserError.exit_code


class Violation(Exception):
    """The client broke a rule; the message says which."""


class Row(NamedTuple):
    """What one environment reports in a call."""

    run_id: int
    reward: float
    done: bool
    observation: np.ndarray
    abandoned: bool
    episode_step: int
    raw_reward: float


class Environment:
    """Checks what one environment reports.

    Attributes:
      lives: run ids seen.
      steps: steps since the last new life.
      ended: episodes that terminated.
      abandoned: episodes that were truncated.
    """

    def __init__(self, env_id: int):
        self.lives: list[int] = []
        self.steps = self.ended = self.abandoned = 0
        self._name = f"environment {env_id}"
        self._simulator: Any = gymnasium.make("CartPole-v1").unwrapped
        self._last: Row | None = None
        self._action = 0

    def report(self, row: Row, action: int) -> None:
        """Checks a row, which will be answered with `action`.

        Raises:
          Violation: it does not follow from the last one.
        """
        last, self._last, action, self._action = self._last, row, self._action, action
        if last is None or row.run_id != last.run_id:
            if row.run_id in self.lives or row.run_id <= 0:
                raise Violation(f"{self._name}: run id {row.run_id} must be new and positive")
            self.lives.append(row.run_id)
            self.steps = 0
            self._expect("the first call of a life", row, self._first(row))
            return
        self.steps += 1
        state, terminated = self._next(last.observation, action, row)
        if last.episode_step >= _LIMIT:
            self.abandoned += 1
            expected = self._first(row)._replace(done=True, abandoned=True)
            self._expect(
                f"the call after step {_LIMIT}, which truncates the episode", row, expected
            )
        elif terminated:
            self.ended += 1
            expected = self._first(row)._replace(reward=1.0, raw_reward=1.0, done=True)
            self._expect("the step that ends an episode", row, expected)
        else:
            step = last.episode_step + 1
            expected = Row(row.run_id, 1.0, False, state, False, step, 1.0)
            self._expect(f"step {step} of an episode, after action {action}", row, expected)

    @staticmethod
    def _first(row: Row) -> Row:
        """The first row of an episode: its observation may be any near zero."""
        near = np.clip(row.observation, -_START, _START)
        return Row(row.run_id, 0.0, False, near, False, 0, 0.0)

    def _next(self, observation: np.ndarray, action: int, row: Row) -> tuple[np.ndarray, bool]:
        """The observation after an action, and whether the episode ends there."""
        simulator = self._simulator
        simulator.state, simulator.steps_beyond_terminated = observation.astype(np.float64), None
        state, _, terminated, _, _ = simulator.step(action)
        limits = np.array([simulator.x_threshold, simulator.theta_threshold_radians])
        # So close to a limit, rounding decides.
        if (np.abs(np.abs(state[[0, 2]]) - limits) < _TOLERANCE).any():
            terminated = row.done
        return state, terminated

    def _expect(self, what: str, row: Row, expected: Row) -> None:
        given: Any
        wanted: Any
        for name, given, wanted in zip(Row._fields, row, expected, strict=True):
            # NaN is not near anything.
            if not np.abs(np.subtract(given, wanted, dtype=np.float64)).max() <= _TOLERANCE:
                raise Violation(
                    f"{self._name}: {name} of {what} is {_shown(given)}, not {_shown(wanted)}"
                )


def _shown(value: Any) -> str:
    return str(np.round(value, 5).tolist() if isinstance(value, np.ndarray) else value)


@dataclasses.dataclass(frozen=True)
class Part:
    """How a learner differs from one that fits the client.

    Attributes:
      token: its secret.
      num_envs: number of environments.
      size: length of an observation.
      actions: description of its actions.
      protocol: number of the protocol; 0: today's.
    """

    token: str = "right"
    num_envs: int = 4
    size: int = 4
    actions: str = spaces.describe(gymnasium.spaces.Discrete(2))
    protocol: int = 0


class Learner:
    """A server with an inference store, whose actions a script chooses; a context manager.

    Attributes:
      address: where it listens.
      environments: those of the client, by id.
      balances: whether to choose actions that keep the pole up; otherwise it falls.
      pause_s: time before the next answer.
      failure: message of the next answer, if that is to be an error.
    """

    def __init__(self, address: str, part: Part, **options: Any):
        """Starts serving; `options` are `ServerOptions`."""
        import tensorflow as tf  # Slow, and mistakes in flags come first.

        from seed_rl.common.inference import env_specs
        from seed_rl.common.inference.env_claims import EnvClaims
        from seed_rl.common.inference.inference_store import InferenceStore
        from seed_rl.common.types import Step
        from seed_rl.grpc import ops
        from seed_rl.grpc.channel_options import ServerOptions

        class Server(ops.Server):
            def description(self) -> dict[str, Any]:
                text = super().description()
                return {**text, "protocol": part.protocol or text["protocol"]}

        self.environments = {env_id: Environment(env_id) for env_id in ENV_IDS}
        self.balances, self.pause_s, self.failure = False, 0.0, ""
        self._violation = ""
        self._changed = threading.Condition()
        box = gymnasium.spaces.Box(-np.inf, np.inf, (part.size,), np.float32)
        specs = env_specs.specs(box, gymnasium.spaces.Discrete(2))
        self._store = store = InferenceStore(
            num_envs=part.num_envs,
            num_training_envs=part.num_envs,
            unroll_length=1000,
            num_overlapping_steps=0,
            queue_capacity=10_000,  # Nobody takes them.
            action_specs=specs.action,
            initial_state=(),
            step_specs=Step(specs.action, specs.env_output, ()),
        )
        rows = tf.nest.map_structure(
            lambda s: tf.TensorSpec([None, *s.shape], s.dtype, s.name), specs.env_output
        )
        ids = tf.TensorSpec([None], tf.int32, "env_ids"), tf.TensorSpec([None], tf.int64, "run_ids")
        numbers = [tf.TensorSpec([None], tf.float32, n) for n in ("raw_rewards", "successes")]

        @tf.function(input_signature=[*ids, rows, *numbers], autograph=False)
        def inference(env_ids: Any, run_ids: Any, outputs: Any, raw: Any, successes: Any) -> Any:
            prev_actions, state = store.begin(env_ids, run_ids, outputs, raw, successes)
            with tf.control_dependencies([prev_actions]):
                inputs = [env_ids, run_ids, *outputs, raw]
                actions = tf.numpy_function(self._act, inputs, tf.int64)
            actions = tf.ensure_shape(actions, [None])
            store.end(env_ids, run_ids, actions, state, Step(prev_actions, outputs, ()))
            return actions

        self._inference = inference
        self._server = Server([address], ServerOptions(token=part.token, **options))
        self._server.bind(inference, isolate_errors=True)
        self._server.bind(EnvClaims(lambda: _SILENCE, lease_s=0.0).function())
        self._server.set_status({ACTION_SPACE: part.actions})
        self._server.start()
        host, _, port = address.rpartition(":")
        self.address = f"{host}:{self._server.ports[0]}" if port == "0" else address

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._store.close()
        self._server.shutdown()

    def _act(self, env_ids: np.ndarray, run_ids: np.ndarray, *outputs: np.ndarray) -> np.ndarray:
        """Chooses actions <int64>[batch]; runs on the server's threads."""
        time.sleep(self.pause_s)
        self.pause_s = 0.0
        if self.failure:
            failure, self.failure = self.failure, ""
            raise RuntimeError(failure)
        if _OTHER_LIFE in run_ids:
            return np.zeros(len(env_ids), np.int64)
        *env_output, raw_rewards = outputs
        observations = EnvOutput(*env_output).observation
        actions = np.ones(len(env_ids), np.int64)
        if self.balances:
            actions = (observations @ [0.1, 0.3, 3.0, 1.0] > 0).astype(np.int64)
        with self._changed:
            try:
                for row in range(len(env_ids)):
                    self._report(int(env_ids[row]), int(actions[row]), row, run_ids, outputs)
            except Violation as error:
                self._violation = self._violation or str(error)
            self._changed.notify_all()
        return actions

    def _report(
        self, env_id: int, action: int, row: int, run_ids: np.ndarray, outputs: Any
    ) -> None:
        if env_id not in self.environments:
            raise Violation(f"environment {env_id}: --task=1 --env_batch_size=2 has only {ENV_IDS}")
        reward, done, observation, abandoned, step, raw = (part[row] for part in outputs)
        self.environments[env_id].report(
            Row(
                int(run_ids[row]),
                float(reward),
                bool(done),
                observation.copy(),
                bool(abandoned),
                int(step),
                float(raw),
            ),
            action,
        )

    def wait(
        self,
        reached: Callable[[Environment], bool],
        what: str,
        timeout_s: float,
        client: Client | None,
    ) -> None:
        """Waits until all environments of the client have reached something.

        Raises:
          Violation: the client broke a rule, ended, or did not get there in time.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not all(map(reached, self.environments.values())) and not self._violation:
                self._changed.wait(0.2)
                if client and (code := client.exit_code()) is not None:
                    raise Violation(f"exits with {code} instead of going on ({what})")
                if time.monotonic() > deadline:
                    raise Violation(f"no {what} within {timeout_s:g} s")
        self.check()

    def check(self) -> None:
        """Raises `Violation` if the client has broken a rule."""
        if self._violation:
            raise Violation(self._violation)

    def restart(self, away_s: float) -> None:
        """Closes the server, and starts it again after a while."""
        self._server.shutdown()
        time.sleep(away_s)
        self._server.start()

    def finish(self) -> None:
        """Answers all further calls with "training is done"."""
        self._store.close(done=True)

    def take_over(self) -> None:
        """Acts as another actor that begins a life in the client's environments."""
        size = len(ENV_IDS)
        zeros, false = np.zeros(size, np.float32), np.zeros(size, np.bool_)
        first = EnvOutput(zeros, false, np.zeros((size, 4), np.float32), false, zeros.astype("i4"))
        self._inference(
            np.array(ENV_IDS, np.int32), np.full(size, _OTHER_LIFE, np.int64), first, zeros, zeros
        )


class Client:
    """The process under test."""

    def __init__(self, command: Sequence[str], folder: Path, address: str, task: int):
        """Starts the client with the flags of an actor."""
        flags = {
            "server_address": address,
            "auth_token_file": folder / "token",
            "task": task,
            "env_batch_size": len(ENV_IDS),
            "connect_timeout_s": _GIVE_UP_S,
            "reconnect_timeout_s": 60,
        }
        self._log = folder / "log"
        with self._log.open("w") as log:
            try:
                self._process = subprocess.Popen(
                    [*command, *(f"--{name}={value}" for name, value in flags.items())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise UserError(f"Cannot start {command[0]}: {error.strerror}.") from None

    def exit_code(self) -> int | None:
        """The exit code of the process, if it has ended."""
        return self._process.poll()

    def stop(self) -> None:
        """Sends SIGTERM."""
        self._process.terminate()

    def expect_exit(self, code: int, timeout_s: float) -> None:
        """Waits for the end of the process.

        Raises:
          Violation: it does not end in time, ends with another code, or fails without a message.
        """
        try:
            given = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise Violation(
                f"runs on after {timeout_s:g} s instead of exiting with {code}"
            ) from None
        if given != code:
            raise Violation(f"exit code {given} instead of {code}")
        if code and not self.output():
            raise Violation("exits without a message")

    def output(self) -> str:
        """Its last line of output."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def kill(self) -> None:
        """Ends the process and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclasses.dataclass
class Check:
    """A line of the report; `fault` is None until it is known, "" if it passed."""

    name: str
    promise: str
    fault: str | None = None


RUN = {
    "first call": "a life begins with reward 0, not done, step 0",
    "steps": "actions reach the environment they are for, no step is lost or doubled",
    "episode end": "`done` comes with the last reward and the next first observation",
    "truncation": "the last observation first, then `done`, `abandoned`, reward 0",
    "slow answer": "waits, in the same life",
    "failed call": "a new life after an error frame",
    "restart": "a new life when the learner is back",
    "done": "exit code 0 at OUT_OF_RANGE",
}
ENDS = {
    "stop": "SIGTERM: exit code 0 within 5 s",
    "claim": "with --task=-1, asks for environments, and again when they are taken over",
    "taken over": f"FAILED_PRECONDITION: exit code {ExitCode.SUPERSEDED:d}",
    "wrong token": f"UNAUTHENTICATED: exit code {_REFUSED} once the patience is over",
    "other observations": f"exit code {_REFUSED}, without a call",
    "other actions": f"exit code {_REFUSED}, without a call",
    "other protocol": f"exit code {_REFUSED}, without a call",
    "unknown ids": f"INVALID_ARGUMENT: exit code {_REFUSED}",
    "no learner": f"exit code {ExitCode.NO_LEARNER:d} after --connect_timeout_s",
}
_PARTS = {
    "wrong token": Part(token="other"),
    "other observations": Part(size=6),
    "other actions": Part(actions=spaces.describe(gymnasium.spaces.Discrete(3))),
    "other protocol": Part(protocol=1000),
    "unknown ids": Part(num_envs=2),
}


class Conformance:
    """Plays all parts; see `main` for the arguments.

    Attributes:
      checks: the report.
    """

    def __init__(
        self,
        command: Sequence[str],
        address: str = "localhost:0",
        patience_s: float = 30.0,
        slow_s: float = 5.0,
        client_address: str | None = None,
        **options: Any,
    ):
        """`options` are those of the server: TLS."""
        self._command, self._address, self._options = command, address, options
        self._client_address = client_address
        self._patience_s, self._slow_s = patience_s, slow_s
        promises = {**RUN, **ENDS}
        if not command:  # Nobody sees how the client exits.
            promises = {name: RUN[name] for name in RUN if name != "done"}
        self.checks = {name: Check(name, promise) for name, promise in promises.items()}

    def play(self) -> bool:
        """Plays all parts; returns whether the client passes."""
        with self._pair(Part()) as (learner, client):
            self._run(learner, client)
        for name in ENDS if self._command else ():
            part, task = _PARTS.get(name, Part()), -1 if name == "claim" else 1
            with self._pair(part, name != "no learner", task) as (learner, client):
                self._judge(name, functools.partial(self._end, name, learner, client), client)
        return all(check.fault == "" for check in self.checks.values())

    @contextlib.contextmanager
    def _pair(
        self, part: Part, serves: bool = True, task: int = 1
    ) -> Iterator[tuple[Learner, Client]]:
        """A learner and, if there is a command, its client."""
        with tempfile.TemporaryDirectory(prefix="seed_rl_") as name:
            (token := Path(name, "token")).touch(0o600)
            token.write_text("right")
            with Learner(self._address, part, **self._options) as learner:
                if not serves:
                    learner.__exit__()
                if not self._command:
                    yield learner, self._announce(learner, token)
                    return
                client_address = self._client_address or learner.address
                client = Client(self._command, Path(name), client_address, task)
                try:
                    yield learner, client
                finally:
                    client.kill()

    def _announce(self, learner: Learner, token: Path) -> Any:
        address = self._client_address or learner.address
        print(
            f"Start the client now, with --server_address={address} "
            f"--auth_token_file={token} --task=1 --env_batch_size=2",
            flush=True,
        )

    def _judge(self, name: str, part: Callable[[], None], client: Client | None) -> bool:
        """Runs one check; returns whether the client passes it."""
        try:
            part()
        except Violation as error:
            said = client.output() if client else ""
            self.checks[name].fault = f"{error}" + (f"\nIts last line: {said}" if said else "")
            return False
        self.checks[name].fault = ""
        return True

    def _run(self, learner: Learner, client: Client | None) -> None:
        """One process through all that may happen to an actor, until training is done."""
        patience = self._patience_s
        wait = functools.partial(learner.wait, timeout_s=patience, client=client)

        def lives(count: int) -> Callable[[Environment], bool]:
            return lambda e: len(e.lives) >= count and e.steps > 0

        def truncate() -> None:
            learner.balances = True
            wait(lambda e: e.abandoned > 0 and e.steps > 0, "truncated episode")
            learner.balances = False

        def be_slow() -> None:
            learner.pause_s = self._slow_s
            steps = {id(e): e.steps for e in learner.environments.values()}
            time.sleep(self._slow_s)
            wait(lambda e: e.steps > steps[id(e)] + 2, "step")
            if any(len(e.lives) > 1 for e in learner.environments.values()):
                raise Violation(f"begins a new life when an answer takes {self._slow_s:g} s")

        def fail() -> None:
            learner.failure = "This call fails, as part of the test."
            wait(lives(2), "new life")

        def restart() -> None:
            learner.restart(away_s=1.0)
            wait(lives(3), "new life")

        def finish() -> None:
            learner.finish()
            assert client
            client.expect_exit(0, patience)
            learner.check()

        start_s = patience if client else 600.0
        parts: dict[str, Callable[[], None]] = {
            "first call": lambda: learner.wait(lambda e: bool(e.lives), "call", start_s, client),
            "steps": lambda: wait(lambda e: e.steps > 30, "30 steps"),
            "episode end": lambda: wait(lambda e: e.ended > 3, "3 ends of episodes"),
            "truncation": truncate,
            "slow answer": be_slow,
            "failed call": fail,
            "restart": restart,
            "done": finish,
        }
        for name in self.checks:
            if name in parts and not self._judge(name, parts[name], client):
                return
        if not client:  # Time for a last answer: training is done.
            learner.finish()
            time.sleep(_GIVE_UP_S)

    def _end(self, name: str, learner: Learner, client: Client) -> None:
        """One way to end, which the client must notice."""
        patience = self._patience_s
        if name in ("stop", "claim", "taken over"):
            learner.wait(lambda e: e.steps > 10, "10 steps", patience, client)
        if name == "claim":
            learner.take_over()
            learner.wait(lambda e: len(e.lives) > 1, "new life", patience, client)
        if name in ("stop", "claim"):
            client.stop()
            client.expect_exit(0, _STOP_GRACE_S)
            return
        if name == "taken over":
            learner.take_over()
        codes = {"taken over": ExitCode.SUPERSEDED, "no learner": ExitCode.NO_LEARNER}
        client.expect_exit(codes.get(name, _REFUSED), patience + _GIVE_UP_S)
        if name != "taken over" and any(e.lives for e in learner.environments.values()):
            raise Violation("calls a learner that it should refuse")

    def report(self) -> Table:
        """The checks as a table."""
        table = Table("", "check", "rule, and what the client did instead", show_edge=False)
        for check in self.checks.values():
            mark = {None: "[yellow]not reached", "": "[green]passed"}.get(
                check.fault, "[red]FAILED"
            )
            table.add_row(
                mark, check.name, check.promise + (f"\n{check.fault}" * bool(check.fault))
            )
        return table


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit code: 0 if the client passes, else 1."""
    given = list(sys.argv[1:] if argv is None else argv)
    own, command = given, []
    if "--" in given:
        own, command = given[: given.index("--")], given[given.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        prog="seed-rl conformance",
        usage="%(prog)s [FLAGS] [-- COMMAND ...]",
        description="Checks a client, started by COMMAND with the flags of an actor appended: an "
        "actor for CartPole-v1 in any language (docs/wire_actor.md). Without COMMAND, prints an "
        "address, waits for a client that you start, and leaves out the checks of exit codes.",
    )
    parser.add_argument("--server_address", default="localhost:0", help="where to listen")
    parser.add_argument(
        "--client_address", help="of a proxy in front of it, for the client (default: none)"
    )
    parser.add_argument("--patience_s", type=float, default=30.0, help="to wait for a reaction")
    parser.add_argument("--slow_s", type=float, default=5.0, help="time of the slow answer")
    parser.add_argument("--tls_certificate", help="PEM file; turns on TLS")
    parser.add_argument("--tls_key", help="PEM file")
    options = vars(parser.parse_args(own))
    address, patience_s, slow_s = (
        options.pop(name) for name in ("server_address", "patience_s", "slow_s")
    )
    conformance = Conformance(command, address, patience_s, slow_s, **options)
    # What it says of the failed call, which is part of the test.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with chatter.left_out():
            passes = conformance.play()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return UserError.exit_code
    Console(soft_wrap=True, highlight=False).print(conformance.report())
    return 0 if passes else 1


if __name__ == "__main__":
    sys.exit(main())
