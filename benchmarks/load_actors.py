"""Many actors in one process, which send recorded steps instead of stepping environments.

`record` plays an environment once; `Actors` starts `native/actors`, which repeats the recording on
any number of connections. That is a C++ program with one thread and one completion queue,
because the actors' own client waits in its caller's thread, which is right for one actor and not
for thousands, and a call through grpcio takes several times the CPU.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import processes
from seed_rl.common import nest
from seed_rl.common.acting.batched_env import BatchedEnv
from seed_rl.common.types import EnvOutput
from seed_rl.grpc import structures, wire
from seed_rl.grpc.numpy_client import Client

_U32 = struct.Struct("<I")


@dataclasses.dataclass(frozen=True)
class Played:
    """What the actors did in a command.

    Attributes:
      seconds: how long it took.
      cpu_s: CPU time of the actors' process.
      calls: calls that were answered.
      errors: of them, those answered with an error.
      lost: connections that broke, or did not come about.
      missing: actors that did not reach the command's goal in time.
      problem: the first error's message.
      waits_ms: median, 99th percentile and maximum of the time from a call to its reply.
      first_waits_ms: the same from the start of a storm to an actor's first reply.
    """

    seconds: float
    cpu_s: float
    calls: int
    errors: int
    lost: int
    missing: int
    problem: str
    waits_ms: list[float] | None
    first_waits_ms: list[float] | None


class Actors(processes.Program):
    """The process of the actors; see `native/actors/main.cc` for what the commands do."""

    def __init__(self, address: str, recording: Path, actors: int, tls_ca: str | None = None):
        """Starts the process; the actors do not connect yet."""
        program = processes.compile_actors()
        super().__init__(
            [program, address, str(recording), str(actors), *([tls_ca] if tls_ca else [])]
        )

    def connect(self) -> Played:
        """All actors connect, and stay silent."""
        return self._run("connect")

    def open(self) -> Played:
        """All actors open their stream of calls."""
        return self._run("open")

    def play(self, seconds: float, spread_s: float = 0) -> Played:
        """The actors play: each always has a call under way.

        Args:
          seconds: how long.
          spread_s: actors that do not play yet begin some time in these first seconds, so that
            their unrolls are not complete all at once.
        """
        return self._run(f"play {seconds} {spread_s}")

    def storm(self, seconds: float) -> Played:
        """All actors lose their connection at once, and come back.

        Args:
          seconds: how long to wait until each had a reply.
        """
        return self._run(f"storm {seconds}")

    def start(self, command: str) -> None:
        """Starts a command; `finish` waits for its end."""
        self.write_line(command)

    def finish(self) -> Played:
        """What the actors did in the last command."""
        return Played(**json.loads(self.wait_ready()))

    def _run(self, command: str) -> Played:
        self.start(command)
        return self.finish()


def record(client: Client, env: BatchedEnv, num_calls: int, seed: int, file: Path) -> int:
    """Plays environments with random actions, and writes the calls that an actor makes.

    The first call begins a life. The others are repeated in a circle, which is closed by truncating
    the episodes: their last step is an ordinary one, and the first observation comes again, with
    `done` and `abandoned`. So any number of repetitions follows the episode protocol.

    Args:
      client: of a learner for these environments.
      env: of one actor.
      num_calls: calls to record, without the last of the circle.
      seed: of environments and actions.
      file: where to write them.

    Returns:
      Bytes of a call.
    """
    from gymnasium.vector.utils import batch_space

    function = client.functions["inference"]
    index = list(client.functions).index("inference")
    size = len(env.env_ids)
    ids, run_ids = np.zeros(size, np.int32), np.zeros(size, np.int64)
    zeros, steps = np.zeros(size, np.float32), np.zeros(size, np.int32)
    yes, no = np.ones(size, np.bool_), np.zeros(size, np.bool_)
    successes = np.full(size, np.nan, np.float32)  # The environment does not say.

    def encode(report: EnvOutput, raw_reward: np.ndarray) -> bytes:
        arguments = (ids, run_ids, report, raw_reward, successes)
        return wire.encode_call(
            0, index, structures.unpack_arguments(function.arguments, arguments)
        )

    actions = batch_space(env.action_space, size)
    actions.seed(seed)
    # The next step overwrites the environment's arrays.
    first = nest.map_structure(np.copy, env.reset(seed=seed))
    calls = [encode(EnvOutput(zeros, no, first, no, steps), zeros)]
    for _ in range(num_calls - 1):
        step = env.step(actions.sample())
        report = EnvOutput(
            step.reward, step.done, step.observation, step.abandoned, step.episode_step
        )
        calls.append(encode(report, step.raw_reward))
    calls.append(encode(EnvOutput(zeros, yes, first, yes, steps), zeros))
    env_ids_at = len(wire.encode_call(0, 0, [ids])) - ids.nbytes
    run_ids_at = len(wire.encode_call(0, 0, [ids, run_ids])) - run_ids.nbytes
    _write(file, (size, env_ids_at, run_ids_at), calls)
    return len(calls[0])


def write_call(file: Path, argument: np.ndarray) -> None:
    """Writes a recording of one call that is the same for all actors and all times."""
    header = len(wire.encode_call(0, 0, []))
    call = wire.encode_call(0, 0, [argument])
    _write(file, (0, header, header), [call, call])


def _write(file: Path, ids: tuple[int, int, int], calls: list[bytes]) -> None:
    """`ids`: number of environments, and the places of their ids and of their run ids."""
    with file.open("wb") as out:
        out.write(b"".join(map(_U32.pack, (*ids, len(calls)))))
        for call in calls:
            out.write(_U32.pack(len(call)) + call)


def play_together(several: Sequence[Actors], seconds: float) -> list[Played]:
    """Processes of actors play at the same time, each actor with a call under way."""
    for actors in several:
        actors.start(f"play {seconds}")
    return [actors.finish() for actors in several]
