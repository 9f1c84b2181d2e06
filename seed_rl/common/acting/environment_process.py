"""Environments in a process of their own, for `seed-rl play` and `evaluate`.

The policy needs TensorFlow, and the environment must not share a process with it: the LLVM inside
TensorFlow and that of Mesa, which draws on machines without a GPU, crash in one process. So the
program that trained the agent is started a second time, as an actor, which imports no TensorFlow;
`--play_request` makes it step its environment for the policy's process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seed_rl.common.acting import env_group
from seed_rl.common.acting.batched_env import BatchStep, EnvironmentFailure
from seed_rl.common.acting.video import Film, VideoWriter
from seed_rl.common.errors import UserError
from seed_rl.common.system import parent_death

if TYPE_CHECKING:
    from typing_extensions import Self  # In `typing` from Python 3.11 on.


class InternalRequest:
    """Base of dataclasses that travel as the JSON of `--play_request`."""

    def to_json(self) -> str:
        return json.dumps({"request": type(self).__name__, **vars(self)})

    @classmethod
    def is_in(cls, text: str) -> bool:
        """Whether `text` is a request of this kind."""
        return f'"request": "{cls.__name__}"' in text

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote.

        Raises:
          UserError: `text` is anything else.
        """
        try:
            values = json.loads(text)
            if values.pop("request", None) != cls.__name__:
                raise ValueError(f"not a {cls.__name__}")
            return cls(**values)
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"--play_request is internal; run `seed-rl play`, `evaluate` or `serve`. ({error})"
            ) from None


@dataclasses.dataclass(frozen=True)
class EnvironmentRequest(InternalRequest):
    """What the process of the environments should do, as the JSON of `--play_request`.

    Attributes:
      video: file to write a video to.
      envs: how many environments to step at once; 1 with a video.
    """

    video: str | None = None
    envs: int = 1


def serve(create_env: Callable[[int], Any], request: EnvironmentRequest) -> None:
    """Steps environments for the process at the other end of standard input, until it exits.

    Args:
      create_env: `create_env(index)` returns the index-th, from 0.
      request: how many, and whether to film.

    Raises:
      EnvironmentFailure: an environment raised, perhaps when it was created.
      UserError: it cannot be used or recorded, or the video cannot be written.
    """
    # A hanging call, in a driver say, would not notice that the other end is closed.
    parent_death.signal_me()
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(Connection(os.dup(0)))
        with open(os.devnull, "rb") as nothing:  # Environments may read standard input, too.
            os.dup2(nothing.fileno(), 0)
        video = VideoWriter(Path(request.video)) if request.video else None
        if video:
            stack.callback(video.close)
        made = env_group.Environments(lambda index, _: Film(create_env(index), video))
        try:
            env = env_group.create(made, np.arange(request.envs, dtype=np.int32))
        except EnvironmentFailure as error:
            if request.envs == 1:
                raise
            raise EnvironmentFailure(
                f"{error} If there can be only one at a time, add --envs=1."
            ) from error.__cause__
        stack.callback(env.close)
        methods: dict[str, Callable[[Any], Any]] = {"reset": env.reset, "step": env.step}
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                name, argument = connection.recv()
                connection.send(methods[name](argument))


class EnvironmentProcess:
    """Environments in another process, with the episode protocol of `BatchedEnv`.

    A context manager; on exit, the process has ended.
    """

    def __init__(self, command: Sequence[str]):
        """Starts the process without waiting for it.

        Args:
          command: starts a program that calls `serve`.
        """
        self._connection, theirs = multiprocessing.Pipe()
        with theirs:
            # Ctrl-C is for the policy, which then ends this process.
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)

    def reset(self, seed: int | None = None) -> Any:
        """As in `BatchedEnv`.

        Raises:
          SystemExit: the process has failed and printed why.
          UserError: it was killed.
        """
        return self._call("reset", seed)

    def step(self, action_batch: Any) -> BatchStep:
        """As in `BatchedEnv`; raises as `reset`."""
        result: BatchStep = self._call("step", action_batch)
        return result

    def __enter__(self) -> EnvironmentProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Closes the environment, and waits until its video is complete and its process has ended.

        Raises:
          SystemExit: the process could not complete the video and printed why.
        """
        self._connection.close()
        try:
            code = self._process.wait()
        except BaseException:  # A second Ctrl-C.
            self._process.kill()
            raise
        if code and kind is None:
            raise SystemExit(1)

    def _call(self, name: str, argument: Any) -> Any:
        try:
            self._connection.send((name, argument))
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._end()

    def _end(self) -> None:
        code = self._process.wait()
        if code > 0:
            raise SystemExit(code)
        if code == 0:
            raise UserError(
                "The program ended without creating an environment. End it with a call to an "
                "agent's program.main(FAMILY, ...) (docs/custom_environments.md)."
            )
        name = signal.Signals(-code).name
        advice = (
            " Drawing without a GPU crashes in a process that has imported TensorFlow: import it "
            "inside the function that runs the learner, not at the top of your program."
        )
        raise UserError(
            f"The environment's process was ended by {name}."
            f"{advice if -code == signal.SIGSEGV else ''}"
        )
