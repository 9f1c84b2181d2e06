"""What every client in another language is tested with."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from seed_rl import conformance
from seed_rl.common.run_files import progress
from tests.helpers.proxies import proxied
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S


def check_conformance(*command: Any) -> None:
    """Checks that the client passes everything that `seed-rl conformance` knows."""
    judged = conformance.Conformance([*map(str, command)])
    assert judged.play(), judged.checks
    assert len(judged.checks) == len(conformance.RUN) + len(conformance.ENDS)


def check_learning(
    *command: Any, folder: pathlib.Path, socket: str, proxy_port: int | None = None
) -> None:
    """Checks that PPO learns the CartPole of two clients, which the learner knows by its spaces.

    Args:
      *command: starts a client.
      folder: an empty one.
      socket: "unix:/path" for the learner.
      proxy_port: if given, the clients connect to a proxy there, with TLS and a certificate.
    """
    secrets = make_secrets(folder / "secrets", "localhost", "127.0.0.1")
    token = f"--auth_token_file={secrets.folder / 'token'}"
    learner = [sys.executable, "-m", "seed_rl.external.ppo_main", "--run_mode=learner"]
    learner += ["--observations=float32[4]", "--actions=2 choices from 0"]
    learner += ["--num_envs=16", "--env_batch_size=8"]
    learner += [f"--logdir={folder}/run", f"--server_address={socket}", token]
    learner += ["--stop_at_return=400", "--total_environment_frames=400000", "--seed=1"]
    actor = [*command, "--env_batch_size=8", token]
    with contextlib.ExitStack() as stack:
        if proxy_port:
            stack.enter_context(proxied(socket, secrets, proxy_port))
            actor += [f"--{name}={path}" for name, path in secrets.of_member.items()]
            actor += [f"--server_address=127.0.0.1:{proxy_port}"]
        else:
            actor += [f"--server_address={socket}"]
        processes = [stack.enter_context(_started(*learner))]
        # The learner hands out the environments of one, but not of the other.
        processes += [stack.enter_context(_started(*actor, f"--task={task}")) for task in (-1, 1)]
        assert [process.wait(10 * PATIENCE_S) for process in processes] == [0, 0, 0]
    ended = progress.read(folder / "run")
    assert ended is not None
    assert (ended.episode_return_mean or 0.0) >= 400
    assert ended.frames < 400_000


@contextlib.contextmanager
def _started(*command: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*map(str, command)]) as process:
        try:
            yield process
        finally:
            process.kill()
