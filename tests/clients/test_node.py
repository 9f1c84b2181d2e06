"""The client for Node: types, `seed-rl conformance`, the proxy, and that its CartPole is learned.

Needs node and npm; its packages are installed in a copy, which takes a network or npm's cache.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from seed_rl import conformance
from seed_rl.common.run_files import progress
from tests.helpers.proxies import proxied
from tests.helpers.secrets import make_secrets
from tests.helpers.waiting import PATIENCE_S

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def node(repository: Any, tmp_path_factory: Any) -> pathlib.Path:
    """The client with its packages."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("node and npm are not installed")
    folder = tmp_path_factory.mktemp("clients") / "node"
    shutil.copytree(
        repository / "clients" / "node", folder, ignore=shutil.ignore_patterns("node_modules")
    )
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    if installed.returncode:
        pytest.skip(f"npm cannot install the packages: {installed.stderr[-500:]}")
    return folder


def test_its_types(node: pathlib.Path) -> None:
    done = subprocess.run(["npm", "run", "check"], cwd=node, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_it_passes_conformance(node: pathlib.Path) -> None:
    judged = conformance.Conformance(["node", str(node / "examples" / "cartpole.js")])
    assert judged.play(), judged.checks
    assert len(judged.checks) == len(conformance.RUN) + len(conformance.ENDS)


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("this.abandoned[row] = 1;", "this.abandoned[row] = 0;", "truncation"),
        ("actions[row]", "actions[0]", "truncation"),
        ("this._batch.reset();", "", "failed call"),
        ("this._endIfFatal(error, pauseS);", "", "taken over"),
        ("action_space ?? env.actions", "nothing ?? env.actions", "other actions"),
    ],
)
def test_conformance_notices(node: pathlib.Path, right: str, wrong: str, check: str) -> None:
    """Guards the checks themselves: each fault is one line in a client that passes."""
    source = (node / "actor.js").read_text()
    assert right in source
    try:
        (node / "actor.js").write_text(source.replace(right, wrong, 1))
        judged = conformance.Conformance(
            ["node", str(node / "examples" / "cartpole.js")], patience_s=10.0, slow_s=1.0
        )
        assert not judged.play()
    finally:
        (node / "actor.js").write_text(source)
    assert judged.checks[check].fault


@contextlib.contextmanager
def started(*command: Any) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*map(str, command)]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("through", ["directly", "the proxy"])
def test_its_cartpole_is_learned(
    node: pathlib.Path, tmp_path: Any, short_path: Any, free_port: int, through: str
) -> None:
    """Guards the whole road, at a Unix socket and with TLS and a client certificate."""
    secrets = make_secrets(tmp_path / "secrets", "localhost", "127.0.0.1")
    socket = f"unix:{short_path}/socket"
    token = f"--auth_token_file={secrets.folder / 'token'}"
    learner = [sys.executable, "-m", "seed_rl.gym.ppo_main", "--run_mode=learner"]
    learner += ["--env_name=CartPole-v1", "--num_envs=16", "--env_batch_size=8"]
    learner += [f"--logdir={tmp_path}/run", f"--server_address={socket}", token]
    learner += ["--stop_at_return=400", "--total_environment_frames=400000", "--seed=1"]
    actor = ["node", node / "examples" / "cartpole.js", "--env_batch_size=8", token]
    with contextlib.ExitStack() as stack:
        if through == "the proxy":
            stack.enter_context(proxied(socket, secrets, free_port))
            actor += [f"--{name}={path}" for name, path in secrets.of_member.items()]
            actor += [f"--server_address=127.0.0.1:{free_port}"]
        else:
            actor += [f"--server_address={socket}"]
        processes = [stack.enter_context(started(*learner))]
        processes += [stack.enter_context(started(*actor, f"--task={task}")) for task in range(2)]
        assert [process.wait(10 * PATIENCE_S) for process in processes] == [0, 0, 0]
    ended = progress.read(tmp_path / "run")
    assert ended is not None
    assert (ended.episode_return_mean or 0.0) >= 400
    assert ended.frames < 400_000
