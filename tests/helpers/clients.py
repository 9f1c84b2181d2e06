"""What every client in another language is tested with."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from seed_rl import conformance
from seed_rl.common.run_files import progress
from tests.helpers.cables import cable
from tests.helpers.proxies import proxied
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until

KEEPALIVE_S = 20.0  # docs/wire_actor.md: the interval, and the time for an answer.


def check_conformance(
    *command: Any, folder: pathlib.Path, socket: str, proxy_port: int | None = None
) -> None:
    """Checks that the client passes everything that `seed-rl conformance` knows.

    Args:
      *command: starts a client.
      folder: an empty one.
      socket: "unix:/path" for the learner.
      proxy_port: if given, the client connects to a proxy there, with TLS and a certificate.
    """
    with contextlib.ExitStack() as stack:
        address = None
        if proxy_port:
            secrets = make_secrets(folder / "secrets", "localhost", "127.0.0.1")
            stack.enter_context(proxied(socket, secrets, proxy_port))
            command += tuple(f"--{name}={path}" for name, path in secrets.of_member.items())
            address = f"127.0.0.1:{proxy_port}"
        judged = conformance.Conformance(
            [*map(str, command)], address=socket, client_address=address
        )
        assert judged.play(), judged.checks
    assert len(judged.checks) == len(conformance.RUN) + len(conformance.ENDS)


def check_learning(*command: Any, folder: pathlib.Path, socket: str, proxy_port: int) -> None:
    """Checks that PPO learns the CartPole of two clients, which the learner knows by its spaces.

    Args:
      *command: starts a client.
      folder: an empty one.
      socket: "unix:/path" for the learner.
      proxy_port: the clients connect to a proxy there, with TLS and a certificate.
    """
    secrets = make_secrets(folder / "secrets", "localhost", "127.0.0.1")
    token = f"--auth_token_file={secrets.folder / 'token'}"
    learner = [sys.executable, "-m", "seed_rl.external.ppo_main", "--run_mode=learner"]
    learner += ["--observations=float32[4]", "--actions=2 choices from 0"]
    learner += ["--num_envs=16", "--env_batch_size=8"]
    learner += [f"--logdir={folder}/run", f"--server_address={socket}", token]
    learner += ["--stop_at_return=400", "--total_environment_frames=400000", "--seed=1"]
    actor = [*command, "--env_batch_size=8", token, f"--server_address=127.0.0.1:{proxy_port}"]
    actor += [f"--{name}={path}" for name, path in secrets.of_member.items()]
    with contextlib.ExitStack() as stack:
        stack.enter_context(proxied(socket, secrets, proxy_port))
        processes = [stack.enter_context(_started(*learner))]
        # The learner hands out the environments of one, but not of the other.
        processes += [stack.enter_context(_started(*actor, f"--task={task}")) for task in (-1, 1)]
        assert [process.wait(10 * PATIENCE_S) for process in processes] == [0, 0, 0]
    ended = progress.read(folder / "run")
    assert ended is not None
    assert (ended.episode_return_mean or 0.0) >= 400
    assert ended.frames < 400_000


def check_faults(*command: Any, folder: pathlib.Path, port: int) -> None:
    """Checks that training goes on after the death of a client, the learner, and the network.

    Args:
      *command: starts a client.
      folder: an empty one.
      port: a free one, for the learner.
    """
    run = [sys.executable, "-m", "seed_rl.command", "train", "vtrace", "external"]
    run += ["--observations=float32[4]", "--actions=2 choices from 0", "--actors=3", "--envs=4"]
    run += [f"--logdir={folder}/run", f"--server_address=127.0.0.1:{port}", "--tensorboard=false"]
    run += ["--save_checkpoint_secs=1", "--total_environment_frames=1000000000", "--lr=1e-5"]
    client = [*command, "--env_batch_size=4"]
    direct = [*client, f"--server_address=127.0.0.1:{port}"]

    def reported() -> progress.Progress:
        wait_until(lambda: progress.read(folder / "run") is not None)
        report = progress.read(folder / "run")
        assert report is not None
        return report

    def trains_on() -> None:
        before = reported().frames
        wait_until(lambda: reported().frames > before)

    def silent(env_id: int) -> bool:
        return env_id in dict(reported().silent_envs)

    with contextlib.ExitStack() as stack:
        learner = stack.enter_context(_started(*run))
        network = stack.enter_context(cable(port))
        far = [*client, f"--server_address={network.address}", "--task=1"]
        far_client = stack.enter_context(_started(*far))
        dying = stack.enter_context(_started(*direct))  # The learner hands out its environments.
        wait_until(lambda: reported().frames > 0 and not silent(0))
        dying.kill()
        wait_until(lambda: silent(0))
        trains_on()
        following = stack.enter_context(_started(*direct))
        wait_until(lambda: not silent(8))  # 0 to 3 may still have an owner.
        trains_on()
        killed = reported().pid
        os.kill(killed, signal.SIGKILL)
        assert learner.wait(PATIENCE_S) != 0
        learner = stack.enter_context(_started(*run))
        wait_until(lambda: reported().pid != killed and not silent(4))
        assert reported().frames > 0  # It resumed.
        trains_on()
        network.cut()
        wait_until(lambda: silent(4))
        trains_on()
        time.sleep(2 * KEEPALIVE_S)  # Until the client has noticed it, too.
        network.mend()
        wait_until(lambda: not silent(4))
        assert far_client.poll() is None and following.poll() is None
        for process in (far_client, following, learner):
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(PATIENCE_S) for process in (far_client, following, learner)]
        assert codes == [0, 0, 0]


@contextlib.contextmanager
def _started(*command: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*map(str, command)]) as process:
        try:
            yield process
        finally:
            process.kill()
