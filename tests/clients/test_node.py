"""The client for Node: types, `seed-rl conformance`, the proxy, and that its CartPole is learned.

Needs node and npm; its packages are installed in a copy, which takes a network or npm's cache.
"""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest

from seed_rl import conformance
from seed_rl.common.errors import ExitCode
from tests.helpers import run
from tests.helpers.clients import ClientTests
from tests.helpers.secrets import make_secrets

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
    installed = run(*command, cwd=folder, timeout=300)
    if installed.returncode:
        pytest.skip(f"npm cannot install the packages: {installed.stderr[-500:]}")
    return folder


@pytest.fixture
def command(node: pathlib.Path) -> list[str]:
    return ["node", str(node / "examples" / "cartpole.js")]


class TestClient(ClientTests):
    pass


def test_its_types(node: pathlib.Path) -> None:
    run("npm", "run", "check", code=0, cwd=node)


@pytest.mark.parametrize(
    ("right", "wrong", "check"),
    [
        ("this.abandoned[row] = 1;", "this.abandoned[row] = 0;", "truncation"),
        ("actions[row]", "actions[0]", "truncation"),
        ("this.episodeStep[row] !== 0", "this.episodeStep[row] < 0", "failed call"),
        ("this._endIfFatal(error, pauseS);", "", "taken over"),
        (
            "crypto.randomBytes(8).readBigInt64LE()",
            "BigInt(globalThis.lives = (globalThis.lives ?? 0) + 1)",
            "stop",
        ),
        ("action_space ?? env.actions", "nothing ?? env.actions", "other actions"),
        ("i >= ARGUMENTS.length || tensor?.name !== ARGUMENTS[i]", "false", "other arguments"),
    ],
)
def test_conformance_notices(
    node: pathlib.Path, command: list[str], right: str, wrong: str, check: str
) -> None:
    """Guards the checks themselves: each fault is one line in a client that passes."""
    source = (node / "actor.js").read_text()
    assert right in source
    try:
        (node / "actor.js").write_text(source.replace(right, wrong, 1))
        judged = conformance.Conformance(command, patience_s=10.0, slow_s=1.0)
        assert not judged.play()
    finally:
        (node / "actor.js").write_text(source)
    assert judged.checks[check].fault


@pytest.mark.parametrize(
    "broken",
    ["() => { throw new Error('no display'); }", "() => ({ ...env, step: () => undefined })"],
)
def test_an_environment_that_fails(node: pathlib.Path, broken: str) -> None:
    """Guards exit code 1: code 2 ends all actors of a cluster."""
    program = f"""
      import {{ Actor, Batch, EXIT }} from "./actor.js";
      const env = {{ observation: {{ dtype: "float32", shape: [1] }}, reset: () => [0] }};
      const make = {broken};
      try {{
        new Actor(make, {{ task: 0, batchSize: 1 }})._batch.step([[0]]);
      }} catch (error) {{ process.exit(error.code); }}
    """
    run("node", "--input-type=module", "-e", program, code=1, cwd=node)


def test_success_of_a_truncated_episode(node: pathlib.Path) -> None:
    """The learner reads it in the second call of the truncation; CartPole has none."""
    program = """
      import { Batch } from "./actor.js";
      const env = { observation: { dtype: "float32", shape: [1] }, reset: () => [0], step: () =>
        ({ observation: [1], reward: 1, terminated: false, truncated: true, success: true }) };
      const batch = new Batch([env], 0);
      for (const _ of [0, 1, 2]) {
        batch.step([[0]]);
        console.log(batch.done[0], batch.success[0]);
        env.step = () => ({ observation: [1], reward: 1, terminated: false, truncated: false });
      }
    """
    command = ["node", "--input-type=module", "--eval", program]
    done = run(*command, cwd=node)
    assert done.stdout.splitlines() == ["0 1", "1 1", "0 NaN"], done.stderr


def test_observations_of_64_bit_integers(node: pathlib.Path) -> None:
    """JavaScript's arrays of them take only BigInt, environments give numbers."""
    program = """
      import { Batch } from "./actor.js";
      for (const dtype of ["int64", "uint64"]) {
        const env = { observation: { dtype, shape: [2] }, reset: () => [3, 4n] };
        const batch = new Batch([env], 0);
        batch.reset();
        console.log(String(batch.observation));
      }
    """
    done = run("node", "--input-type=module", "--eval", program, code=0, cwd=node)
    assert done.stdout.splitlines() == ["3,4", "3,4"]


def test_a_lost_connection_is_closed_before_the_pause(node: pathlib.Path) -> None:
    """Otherwise the learner counts it for up to 5 s more."""
    program = """
      import { Actor } from "./actor.js";
      import { ConnectionLost } from "./client.js";
      const env = { observation: { dtype: "float32", shape: [1] }, reset: () => [0] };
      const actor = new Actor(() => env, { task: 0, batchSize: 1 });
      actor._life = () => {
        actor._client = { close: () => console.log("close") };
        throw new ConnectionLost();
      };
      actor._pause = () => { console.log("pause"); actor.stop(); };
      await actor.run();
    """
    done = run("node", "--input-type=module", "--eval", program, code=0, cwd=node)
    assert done.stdout.splitlines()[:2] == ["close", "pause"]


def test_certificates_that_are_being_replaced(node: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A new one beside its old key: an actor waits for both, and its last words name them."""
    files = make_secrets(tmp_path / "new", "localhost").actor
    files["tls_key"] = make_secrets(tmp_path / "old", "localhost").actor["tls_key"]
    command = ["node", "examples/cartpole.js", "--server_address=localhost:9"]
    command += ["--connect_timeout_s=0", *(f"--{name}={path}" for name, path in files.items())]
    done = run(*command, code=ExitCode.NO_LEARNER, cwd=node)
    assert f"{files['tls_key']}) cannot be used" in done.stderr


@pytest.mark.parametrize(("kind", "code"), [("0", "0"), ("1", "3")])
def test_frames_that_are_no_answer(node: pathlib.Path, kind: str, code: str) -> None:
    """A call, and a reply with an error's code: docs/wire_format.md calls them malformed."""
    program = f"""
      import {{ WireError, decode, encodeCall }} from "./wire.js";
      const frame = encodeCall(7n, {code}, []);
      frame[4] = {kind};
      try {{ decode(frame); }} catch (error) {{ process.exit(error instanceof WireError ? 3 : 1); }}
    """
    run("node", "--input-type=module", "--eval", program, code=3, cwd=node)


def test_patience_ignores_the_wall_clock(node: pathlib.Path) -> None:
    """Guards against an actor that gives up, or never does, when the machine's time is set."""
    program = """
      import { Actor } from "./actor.js";
      const env = { observation: { dtype: "float32", shape: [1] }, reset: () => [0] };
      const actor = new Actor(() => env, { task: 0, batchSize: 1, connectTimeoutS: 600 });
      const now = Date.now;
      Date.now = () => now() + 1e9;
      process.exit(actor._remainingS() > 0 ? 0 : 1);
    """
    run("node", "--input-type=module", "--eval", program, code=0, cwd=node)
