"""Runs an attack beside honest clients, and judges what they and the server's memory noticed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Any

from benchmarks import processes, secured

MAX_WAIT_MS = 200.0
"""The longest that an honest client may wait for an answer."""

MAX_JOIN_MS = 1000.0
"""The longest that a new client may take to get in and be answered."""

MAX_GROWTH_MIB = 256.0
"""How much the resident memory of server and proxy together may grow during an attack."""

_KILL_GROWTH_MIB = 1536.0  # Protects the machine.
_NEWCOMERS_AT = (0.3, 0.6, 0.9)  # Fractions of the attack.
_AFTER_S = 0.5
_WARM_UP_S = 0.5


@dataclasses.dataclass
class Result:
    """What happened during an attack. Times are in ms, memory in MiB.

    Attributes:
      name: of the attack.
      quiet_ms: p50, p99 and maximum of the honest client's waits before the attack.
      waits_ms: the same during and shortly after it.
      newcomer_ms: how long the slowest new client took to get in and be answered.
      rss_mib: resident memory of server and proxy before the attack, its peak, and afterwards.
      counts: what the attacker did.
      problems: in words, the limits that were exceeded.
    """

    name: str
    quiet_ms: tuple[float, float, float]
    waits_ms: tuple[float, float, float]
    newcomer_ms: float
    rss_mib: tuple[float, float, float]
    counts: dict[str, int]
    problems: list[str]


class Range(contextlib.ExitStack):
    """The processes that run attacks, one after the other, and the secrets of all servers."""

    def __init__(self) -> None:
        """Starts the processes."""
        super().__init__()
        folder = self.enter_context(tempfile.TemporaryDirectory(prefix="seed_rl_hostile_"))
        self._folder = pathlib.Path(folder)
        self._secrets = secured.make_secrets(self._folder / "secrets")
        self._honest, self._newcomer, self._attacker = (
            self.enter_context(processes.Worker(f"benchmarks.hostile.{module}"))
            for module in ("clients", "clients", "attacks")
        )
        for worker in (self._honest, self._newcomer, self._attacker):
            worker.wait_ready()

    def run(self, attack: str, seconds: float) -> Result:
        """Runs one attack against a new server with its proxy."""
        path = self._folder / "learner"
        with processes.Worker("benchmarks.hostile.server", str(path)) as server:
            server.wait_ready()
            proxy, port = secured.start_proxy(path, self._secrets)
            with proxy:
                try:
                    return self._run(attack, seconds, port, (server.pid, proxy.pid))
                finally:
                    proxy.kill()

    def _run(self, attack: str, seconds: float, port: int, pids: Sequence[int]) -> Result:
        access = {"port": port, "secrets": str(self._secrets.folder)}
        newcomers = [self._join(access)]
        quiet_s = max(1.0, seconds / 4)
        start = time.monotonic() + _WARM_UP_S
        self._honest.send(
            action="call",
            **access,
            until=start + quiet_s + seconds + _AFTER_S,
        )
        time.sleep(_WARM_UP_S + quiet_s)
        with Memory(pids) as memory:
            began = time.monotonic()
            self._attacker.send(name=attack, **access, seconds=seconds)
            newcomers += self._join_during(access, began, seconds)
            counts = self._attacker.receive()
            newcomers.append(self._join(access))
            honest = self._honest.receive()
        return _judge(attack, start, began, honest, newcomers, counts, memory)

    def _join_during(self, access: Any, began: float, seconds: float) -> list[dict[str, Any]]:
        results = []
        for fraction in _NEWCOMERS_AT:
            time.sleep(max(0, began + fraction * seconds - time.monotonic()))
            if time.monotonic() < began + seconds:
                results.append(self._join(access))
        return results

    def _join(self, access: Any) -> dict[str, Any]:
        self._newcomer.send(action="join", **access)
        result: dict[str, Any] = self._newcomer.receive()
        return result


class Memory(contextlib.AbstractContextManager["Memory"]):
    """Watches the resident memory of processes, and kills them before they take the machine's.

    Attributes:
      mib: of all at the start, the peak, and at the end; 0 if one has ended.
      killed: whether they were killed.
    """

    def __init__(self, pids: Sequence[int]):
        """Begins to watch."""
        self._pids = pids
        start = self._read()
        self.mib = (start, start, start)
        self.killed = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            start, peak, _ = self.mib
            now = self._read()
            self.mib = (start, max(peak, now), now)
            if now > start + _KILL_GROWTH_MIB and not self.killed:
                self.killed = True
                for pid in self._pids:
                    os.kill(pid, signal.SIGKILL)

    def _read(self) -> float:
        parts = [processes.memory_mib(pid) for pid in self._pids]
        return sum(parts) if all(parts) else 0.0


def _judge(
    attack: str,
    start: float,
    began: float,
    honest: dict[str, Any],
    newcomers: list[dict[str, Any]],
    counts: dict[str, int],
    memory: Memory,
) -> Result:
    calls = [call for call in honest["calls"] if call[0] >= start]
    quiet = _waits([call for call in calls if call[1] < began], honest["pauses"])
    waits = _waits([call for call in calls if call[1] >= began], honest["pauses"])
    newcomer_ms = max(newcomer["ms"] for newcomer in newcomers)
    first, peak, last = memory.mib
    problems = []
    if memory.killed:
        problems.append("its memory grew without end")
    elif not last:
        problems.append("the server or the proxy died")
    if waits[2] > MAX_WAIT_MS:
        problems.append(f"an honest client waited {waits[2]:,.0f} ms")
    failures = [text for _, text in honest["failures"]]
    if failures:
        problems.append(f"an honest client failed {len(failures)} times: {failures[0]}")
    refused = [newcomer["error"] for newcomer in newcomers if newcomer["error"]]
    if refused:
        problems.append(f"{len(refused)} newcomers did not get in: {refused[0]}")
    elif newcomer_ms > MAX_JOIN_MS:
        problems.append(f"a newcomer took {newcomer_ms:,.0f} ms")
    if peak - first > MAX_GROWTH_MIB:
        problems.append(f"memory grew by {peak - first:,.0f} MiB")
    return Result(attack, quiet, waits, newcomer_ms, memory.mib, counts, problems)


def _waits(calls: list[list[float]], pauses: list[list[float]]) -> tuple[float, float, float]:
    """Median, 99th percentile and maximum in ms, without times when the client did not run."""
    if not calls:
        return (float("nan"),) * 3
    waits = []
    for start, end in calls:
        stolen = sum(max(0.0, min(end, p[1]) - max(start, p[0])) for p in _near(pauses, start, end))
        waits.append(1000 * (end - start - stolen))
    waits.sort()
    return statistics.median(waits), waits[int(0.99 * (len(waits) - 1))], waits[-1]


def _near(pauses: list[list[float]], start: float, end: float) -> list[list[float]]:
    if end - start < 0.005:
        return []  # Too short to matter, and there are very many of them.
    return [pause for pause in pauses if pause[1] > start and pause[0] < end]
