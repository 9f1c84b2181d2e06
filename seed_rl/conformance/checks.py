"""The checks: which parts are played, and what the client should do."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rich.markup import escape
from rich.table import Table

from seed_rl.common.errors import ExitCode, UserError
from seed_rl.common.types import Spaces
from seed_rl.conformance.learner import ENV_IDS, Learner, Part
from seed_rl.conformance.rules import Environment, Violation

_STOP_GRACE_S, _GIVE_UP_S = 6.0, 3.0
# A client may end before a pause that might outlast its patience for a wrong token: with those of
# docs/wire_actor.md, one of 1.6 s.
_NOT_BEFORE_S = {"no learner": 0.9 * _GIVE_UP_S, "wrong token": 0.9 * (_GIVE_UP_S - 1.6)}
_REFUSED = UserError.exit_code


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
        self._began = time.monotonic()
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

    @property
    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self._began

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
                f"still runs after {timeout_s:g} s instead of exiting with {code}"
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
    "stop": "started again, draws new run ids; SIGTERM: exit code 0 within 5 s",
    "claim": "with --task=-1, asks for environments, and again when they are taken over",
    "taken over": f"FAILED_PRECONDITION: exit code {ExitCode.SUPERSEDED:d}",
    "wrong token": f"UNAUTHENTICATED: exit code {_REFUSED} once the patience is over",
    "other observations": f"exit code {_REFUSED}, without a call",
    "other actions": f"exit code {_REFUSED}, without a call",
    "other protocol": f"exit code {_REFUSED}, without a call",
    "other arguments": f"exit code {_REFUSED}, without a call",
    "unknown ids": f"INVALID_ARGUMENT: exit code {_REFUSED}",
    "no learner": f"exit code {ExitCode.NO_LEARNER:d} after --connect_timeout_s",
}
_STEPS = "steps are counted, rewards and observations finite"
_EPISODES = "episodes end, by themselves or by a time limit, and begin as they should"
_PARTS = {
    "wrong token": Part(token="other"),
    "other observations": Part(
        observations=gymnasium.spaces.Box(-np.inf, np.inf, (97,), np.float32)
    ),
    "other actions": Part(actions=gymnasium.spaces.Discrete(97)),
    "other protocol": Part(protocol=1000),
    "other arguments": Part(argument="weather"),
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
        of: Spaces | None = None,
        **options: Any,
    ):
        """`of`: spaces of the environments, None for CartPole; `options`: of the server, TLS."""
        self._command, self._address, self._options = command, address, options
        self._of = of
        self._client_address = client_address
        self._patience_s, self._slow_s = patience_s, slow_s
        self._run_ids: set[int] = set()  # Of the first process.
        promises = {**RUN, **ENDS}
        if not command:  # The client's exit cannot be observed.
            promises = {name: RUN[name] for name in RUN if name != "done"}
        if of:  # Neither its equations nor how to play long episodes is known.
            promises.update(steps=_STEPS, **{"episode end": _EPISODES})
            del promises["truncation"]
        self.checks = {name: Check(name, promise) for name, promise in promises.items()}

    def play(self) -> bool:
        """Plays all parts; returns whether the client passes."""
        with self._pair(Part()) as (learner, client):
            self._run(learner, client)
            self._run_ids = learner.run_ids
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
            with Learner(self._address, part, self._of, **self._options) as learner:
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
        """Takes one process through all that may happen to an actor, until training is done."""
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
            learner.fail()
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
            "episode end": lambda: wait(
                lambda e: e.ended > 3 or (self._of is not None and e.ended + e.abandoned > 0),
                "end of an episode",
            ),
            "truncation": truncate,
            "slow answer": be_slow,
            "failed call": fail,
            "restart": restart,
            "done": finish,
        }
        for name in self.checks:
            if name in parts and not self._judge(name, parts[name], client):
                return
        if not client:  # Leaves time for a last answer: training is done.
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
            if learner.claims < 2:
                raise Violation("begins a new life in environments that are another actor's")
        if name == "stop" and self._run_ids & learner.run_ids:
            raise Violation("uses a run id again that an earlier process has used")
        if name in ("stop", "claim"):
            client.stop()
            client.expect_exit(0, _STOP_GRACE_S)
            return
        if name == "taken over":
            learner.take_over()
        codes = {"taken over": ExitCode.SUPERSEDED, "no learner": ExitCode.NO_LEARNER}
        client.expect_exit(codes.get(name, _REFUSED), patience + _GIVE_UP_S)
        if client.seconds < _NOT_BEFORE_S.get(name, 0.0):
            raise Violation(f"gives up after {client.seconds:.1f} of {_GIVE_UP_S:g} s")
        if name != "taken over" and any(e.lives for e in learner.environments.values()):
            raise Violation("calls a learner that it should refuse")

    def report(self) -> Table:
        """The checks as a table."""
        table = Table("", "check", "rule, and what the client did instead", show_edge=False)
        for check in self.checks.values():
            mark = {None: "[yellow]not reached", "": "[green]passed"}.get(
                check.fault, "[red]FAILED"
            )
            fault = f"\n{escape(check.fault)}" if check.fault else ""  # It may quote the client.
            table.add_row(mark, check.name, check.promise + fault)
        return table
