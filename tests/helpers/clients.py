"""What every client in another language is tested with."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from seed_rl import conformance
from seed_rl.common.errors import ExitCode
from seed_rl.common.run_files import progress
from seed_rl.grpc import wire
from seed_rl.grpc.errors import StatusCode
from tests.helpers import run
from tests.helpers.cables import Cable
from tests.helpers.proxies import proxied
from tests.helpers.scripted_server import Scripted
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until

KEEPALIVE_S = 20.0  # docs/wire_actor.md: the interval, and the time for an answer.


class ClientTests:
    """The tests of a client, for a subclass in a module with a fixture `command` that starts it."""

    @pytest.mark.slow
    def test_it_passes_conformance(self, command: list[str], socket_address: str) -> None:
        _check_conformance(command, socket_address)

    @pytest.mark.nightly
    def test_it_passes_conformance_through_the_proxy(
        self, command: list[str], tmp_path: pathlib.Path, socket_address: str
    ) -> None:
        """With TLS and a certificate."""
        secrets = make_secrets(tmp_path / "secrets", "localhost", "127.0.0.1")
        command = [*command, *(f"--{name}={path}" for name, path in secrets.actor.items())]
        with proxied(socket_address, secrets) as port:
            _check_conformance(command, socket_address, f"127.0.0.1:{port}")

    def test_a_malformed_token(
        self, command: list[str], tmp_path: pathlib.Path, socket_address: str
    ) -> None:
        """At the start, and in a file that is replaced while there is no learner."""
        token = tmp_path / "token"
        command = [*command, f"--auth_token_file={token}", f"--server_address={socket_address}"]
        for text in ("xyz\nzy", "xyzzy\u00e9", " \n", "x" * 4097):
            token.write_text(text)
            done = run(*command, code=2)
            assert "token" in done.stderr and "zy" not in done.stderr
        token.write_text("xyzzy")
        # Longer than two attempts to connect.
        command += ["--connect_timeout_s=9"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            process.stderr.readline()
            token.write_text("xyz\nzy")
            last = process.stderr.read()
        assert process.returncode == ExitCode.NO_LEARNER, last
        assert "token" in last and "zy" not in last

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            (["tls_cert", "tls_key"], "tls_ca"),
            (["tls_ca", "tls_cert"], "tls_key"),
            (["task=1.5"], "task"),
            (["task="], "task"),
            (["env_batch_size=1.5"], "env_batch_size"),
        ],
    )
    def test_mistakes_in_flags(
        self, command: list[str], flags: list[str], message: str, socket_address: str
    ) -> None:
        """Guards the token from a connection that is not encrypted, and others' environments."""
        given = [f"--{flag}" if "=" in flag else f"--{flag}={__file__}" for flag in flags]
        given += [f"--server_address={socket_address}", "--connect_timeout_s=0"]
        assert message in run(*command, *given, code=2).stderr

    def test_a_learner_that_refuses_each_life(
        self, command: list[str], repository: pathlib.Path, socket_address: str
    ) -> None:
        """Guards the pause, and the end of patience, of an actor without a task."""

        def script(_: Scripted, frame: wire.Frame) -> Iterator[bytes]:
            if frame.code == 1:  # `claim`
                yield wire.encode_reply(frame.call_id, [np.array([2, 3], np.int32)])
            else:
                refused.append(frame.call_id)
                yield wire.encode_error(frame.call_id, StatusCode.FAILED_PRECONDITION, "taken")

        refused: list[int] = []
        command = [*command, "--task=-1", "--env_batch_size=2", "--connect_timeout_s=3"]
        with Scripted(socket_address, script, json.dumps(description(repository))):
            command += [f"--server_address={socket_address}"]
            run(*command, code=ExitCode.NO_LEARNER, timeout=60)
        assert 2 <= len(refused) <= 9  # 3 s of pauses: at least 0.05 s, 0.1 s, 0.2 s ...

    @pytest.mark.nightly
    def test_its_cartpole_is_learned_through_the_proxy(
        self, command: list[str], tmp_path: pathlib.Path, socket_address: str
    ) -> None:
        """By PPO, from two clients, whose environment the learner knows by its spaces."""
        secrets = make_secrets(tmp_path / "secrets", "localhost", "127.0.0.1")
        token = f"--auth_token_file={secrets.folder / 'token'}"
        learner = [sys.executable, "-m", "seed_rl.external.ppo_main", "--run_mode=learner"]
        learner += ["--observations=float32[4]", "--actions=2 choices from 0"]
        learner += ["--num_envs=16", "--env_batch_size=8"]
        learner += [f"--logdir={tmp_path}/run", f"--server_address={socket_address}", token]
        learner += ["--stop_at_return=400", "--total_environment_frames=400000", "--seed=1"]
        actor = [*command, "--env_batch_size=8", token]
        actor += [f"--{name}={path}" for name, path in secrets.actor.items()]
        with contextlib.ExitStack() as stack:
            port = stack.enter_context(proxied(socket_address, secrets))
            actor.append(f"--server_address=127.0.0.1:{port}")
            processes = [stack.enter_context(_started(*learner))]
            # The learner hands out the environments of one, but not of the other.
            for task in (-1, 1):
                processes.append(stack.enter_context(_started(*actor, f"--task={task}")))
            assert [process.wait(10 * PATIENCE_S) for process in processes] == [0, 0, 0]
        ended = progress.read(tmp_path / "run")
        assert ended is not None
        assert (ended.episode_return_mean or 0.0) >= 400
        assert ended.frames < 400_000

    @pytest.mark.nightly
    def test_training_survives_the_death_of_anybody(
        self, command: list[str], tmp_path: pathlib.Path, free_port: int
    ) -> None:
        """Guards against `kill -9` of a client and of the learner, and against a cut network."""
        address = f"127.0.0.1:{free_port}"
        run = [sys.executable, "-m", "seed_rl.command", "train", "vtrace", "external"]
        run += ["--observations=float32[4]", "--actions=2 choices from 0", "--actors=3", "--envs=4"]
        run += [f"--logdir={tmp_path}/run", f"--server_address={address}", "--tensorboard=false"]
        run += ["--save_checkpoint_secs=1", "--total_environment_frames=1000000000", "--lr=1e-5"]
        client = [*command, "--env_batch_size=4"]
        direct = [*client, f"--server_address={address}"]  # The learner hands out environments.

        def reported() -> progress.Progress:
            wait_until(lambda: progress.read(tmp_path / "run") is not None)
            report = progress.read(tmp_path / "run")
            assert report is not None
            return report

        def trains_on() -> None:
            before = reported().frames
            wait_until(lambda: reported().frames > before)

        def silent(env_id: int) -> bool:
            return env_id in dict(reported().silent_envs)

        with contextlib.ExitStack() as stack:
            learner = stack.enter_context(_started(*run))
            network = stack.enter_context(contextlib.closing(Cable(free_port)))
            far = [*client, f"--server_address={network.address}", "--task=1"]
            far_client = stack.enter_context(_started(*far))
            dying = stack.enter_context(_started(*direct))
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


def description(repository: pathlib.Path) -> Any:
    """What the learner of docs/wire_actor.md answers to Describe."""
    page = (repository / "docs" / "wire_actor.md").read_text()
    return json.loads(page.partition("```json\n")[2].partition("```")[0])


def _check_conformance(command: list[str], address: str, client_address: str | None = None) -> None:
    """Checks that the client passes everything that `seed-rl conformance` knows."""
    judged = conformance.Conformance(command, address=address, client_address=client_address)
    assert judged.play(), judged.checks
    assert len(judged.checks) == len(conformance.RUN) + len(conformance.ENDS)


@contextlib.contextmanager
def _started(*command: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*map(str, command)]) as process:
        try:
            yield process
        finally:
            process.kill()
