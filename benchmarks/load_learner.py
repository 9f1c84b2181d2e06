"""The learner under load: a process as users start it, and what can be seen of it from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import processes
from benchmarks.secured import Secrets
from benchmarks.workloads import WORKLOADS, Workload
from seed_rl.common.run_files import progress
from seed_rl.grpc.channel_options import ClientOptions
from seed_rl.grpc.errors import ConnectionLost
from seed_rl.grpc.numpy_client import Client
from seed_rl.launch import ports

_START_S = 300.0
_STOP_S = 60.0
_PATIENCE_S = 120.0  # Under load, the learner answers late.
_SETTLED_S = 0.3

LOADS = {
    "pong": dataclasses.replace(WORKLOADS["W1"], about="V-trace on Pong, Nature CNN"),
    "cartpole": Workload(
        "V-trace on CartPole, an MLP",
        "gym",
        "vtrace",
        unroll_length=20,
        batch_size=256,
        env={"env_name": "CartPole-v1"},
        frames_per_transition=1,
    ),
    "dmlab": WORKLOADS["W7"],
}
"""What is trained: networks that cost, and one that costs little, so that the calls count."""


@dataclasses.dataclass(frozen=True)
class Counters:
    """What the learner has done since its start.

    Attributes:
      time: when that was, in seconds of `time.monotonic`.
      cpu_s: CPU time.
      calls: answered calls.
      steps: agent steps in them.
      batches: inference batches.
      queue_s: sum of the times that calls waited for their batch.
      run_s: sum of the times that batches took.
      frames: environment frames trained on, as last reported.
    """

    time: float
    cpu_s: float
    calls: int
    steps: int
    batches: int
    queue_s: float
    run_s: float
    frames: int


class Learner(contextlib.AbstractContextManager["Learner"]):
    """A learner process.

    Attributes:
      address: where it serves.
      client: a client of its, to ask for statistics.
    """

    def __init__(
        self,
        load: Workload,
        folder: Path,
        num_envs: int,
        env_batch_size: int,
        flags: dict[str, Any],
        tls: Secrets | None = None,
    ):
        """Starts it, and waits until it serves.

        Args:
          load: what is trained.
          folder: for its files.
          num_envs: environments of all actors.
          env_batch_size: environments per actor.
          flags: further flags.
          tls: the secrets of the run; None: no encryption.

        Raises:
          SystemExit: with the end of its log, if it ends first.
        """
        self.address = f"localhost:{ports.free_port()}"
        all_flags = dict(
            **load.all_flags,
            run_mode="learner",
            logdir=folder / "run",
            server_address=self.address,
            num_envs=num_envs,
            env_batch_size=env_batch_size,
            total_environment_frames=10**12,
            save_model=False,
        )
        if tls is not None:
            all_flags.update(tls.learner)
        all_flags.update(flags)
        self._logdir = folder / "run"
        self._log = folder / "learner.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", load.program] + processes.as_flags(all_flags),
                stdout=log,
                stderr=log,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
        self._wait_until_serving()
        self.client = Client(
            self.address,
            ClientOptions(
                connect_timeout_s=_PATIENCE_S, tls_ca=tls.actor["tls_ca"] if tls else None
            ),
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def _wait_until_serving(self) -> None:
        host, port = self.address.split(":")
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"error: the learner ended:\n{self._log.read_text()[-3000:]}")
            with contextlib.suppress(OSError):
                socket.create_connection((host, int(port))).close()
                return
            time.sleep(0.1)
        self._process.kill()
        raise SystemExit(f"error: the learner does not serve:\n{self._log.read_text()[-3000:]}")

    def connections(self) -> int:
        """Open streams of calls."""
        return int(self._stats()["connections"])

    def _stats(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self.client.stats()
            except ConnectionLost:  # gRPC gives up after 20 s.
                if time.monotonic() > deadline:
                    raise

    def counters(self) -> Counters:
        """What it has done so far."""
        found = self._stats()["functions"]["inference"]
        state = progress.read(self._logdir)
        return Counters(
            time=time.monotonic(),
            cpu_s=processes.cpu_seconds(self.pid),
            calls=found["calls"],
            steps=found["rows"],
            batches=found["batches"],
            queue_s=found["queue_wait_us"] * found["calls"] * 1e-6,
            run_s=found["run_us"] * found["batches"] * 1e-6,
            frames=state.frames if state else 0,
        )

    def memory_mib(self, seconds: float) -> float:
        """Its resident memory in MiB: the median over a number of seconds."""
        end = time.monotonic() + seconds
        seen: list[float] = []
        while not seen or time.monotonic() < end:
            time.sleep(_SETTLED_S)
            seen.append(processes.memory_mib(self.pid))
        return statistics.median(seen)

    def __exit__(self, *exc_info: object) -> None:
        with contextlib.suppress(Exception):
            self.client.close()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
