"""The task file of SkyPilot, read by SkyPilot, and what its nodes run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import yaml

from seed_rl.cluster.learners import PORTS_APART
from seed_rl.common.run_files import progress
from seed_rl.launch import ports
from tests.helpers import REPOSITORY, run, stand_in
from tests.helpers.secrets import run_script as make_secrets
from tests.helpers.waiting import PATIENCE_S, wait_until

SKY = REPOSITORY / "sky"
TASK = yaml.safe_load((SKY / "seed_rl.yaml").read_text())
# Reads [[task, {variable: value}], ...]; prints for each what SkyPilot makes of it, or the error.
PARSE = """
import json, sys
from sky import Task
from sky.utils import schemas
# As on SkyPilot's server: the client leaves unknown fields of some parts to it.
assert hasattr(schemas, "_allow_additional_properties")
schemas._allow_additional_properties = lambda: False
for config, variables in json.load(sys.stdin):
    try:
        task = Task.from_yaml_config(config, env_overrides=list(variables.items()))
    except Exception as error:
        print(json.dumps({"error": str(error)}))
        continue
    (resources,) = task.resources
    print(json.dumps({
        "num_nodes": task.num_nodes,
        "run": task.run,
        "envs": task.envs,
        "files": task.file_mounts,
        "buckets": {path: [s.source, s.mode.name] for path, s in task.storage_mounts.items()},
        "recovery": resources.job_recovery,
    }))
"""


@pytest.fixture(scope="module")
def parse(tmp_path_factory):
    """Has SkyPilot read tasks; skips without it (see sky/check.sh)."""
    python = os.environ.get("SKYPILOT_PYTHON")
    if python is None:
        try:  # The folder sky/ would pass for its module.
            importlib.metadata.distribution("skypilot")
        except importlib.metadata.PackageNotFoundError:
            pytest.skip("SkyPilot is missing: sky/check.sh installs it and runs this")
        python = sys.executable
    home = tmp_path_factory.mktemp("home")

    def parse(*tasks):
        done = run(
            python,
            "-c",
            PARSE,
            code=0,
            input=json.dumps(tasks),
            variables={"HOME": str(home), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"},
            cwd=home,
        )
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return parse


def test_skypilot_understands_the_task(parse):
    (task,) = parse((TASK, {"BUCKET": "gs://b"}))
    assert "error" not in task, task
    assert task["num_nodes"] == TASK["num_nodes"] == 5
    assert task["run"] == "sky/node.sh\n" and (SKY / "node.sh").stat().st_mode & 0o111
    assert task["buckets"] == {"/runs": ["gs://b", "MOUNT_CACHED"]}
    assert task["envs"]["GAME"] == "atari"
    assert set(task["files"].values()) == {
        f"secrets/{name}" for name in ("token", "cert.pem", "key.pem", "ca.pem")
    }
    assert task["recovery"]["recover_on_exit_codes"] == [75]
    assert task["recovery"]["max_restarts_on_errors"] == 3


def test_skypilot_finds_a_typo_and_asks_for_the_bucket(parse):
    """The typo guards the test above, at a place that is checked because of what PARSE changes."""
    recovery = {**TASK["resources"]["job_recovery"], "num_nodse": 3}
    bad = {**TASK, "resources": {**TASK["resources"], "job_recovery": recovery}}
    typo, no_bucket = parse((bad, {"BUCKET": "gs://b"}), (TASK, {}))
    assert "num_nodse" in typo.get("error", ""), typo
    assert "'BUCKET' is None" in no_bucket["error"]


@pytest.mark.parametrize(
    ("game", "agent", "extra"),
    [("gym", "vtrace", "gym"), ("atari", "r2d2", "atari"), ("my.py", "", "")],
)
def test_the_setup_installs_what_the_game_needs(tmp_path, game, agent, extra):
    """For GAME as ./run_local.sh has it: a program of the user's is no extra."""
    (tmp_path / "scripts").mkdir()
    stand_in(tmp_path / "scripts/setup.sh", 'echo "extra=$1"')
    (tmp_path / "seed_rl").symlink_to(REPOSITORY / "seed_rl")
    (tmp_path / "my.py").touch()
    variables = {"GAME": game, "AGENT": agent}
    done = run("bash", "-c", TASK["setup"], code=0, variables=variables, cwd=tmp_path)
    assert done.stdout == f"extra={extra}\n"
    wrong = {"GAME": game, "AGENT": "wrong"}
    done = run("bash", "-c", TASK["setup"], variables=wrong, cwd=tmp_path)
    assert game == "my.py" or (done.returncode, done.stdout) == (2, "")


class Cluster:
    """Nodes on this machine, as SkyPilot starts them."""

    def __init__(self, folder, port, **envs):
        self._folder, self._nodes = folder, []
        secrets = folder / "secrets"
        if not secrets.exists():
            assert make_secrets(secrets, "localhost").returncode == 0
        self._envs = {
            **{name: value for name, value in TASK["envs"].items() if value is not None},
            "RUNS": str(folder / "runs"),
            "SEED_RL_SECRETS": str(secrets),
            "SEED_RL_ADDRESS": f"localhost:{port}",
            "SEED_RL_BIND": "127.0.0.1",
            "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.1",
            "SKYPILOT_NUM_NODES": "2",
            "PYTHON": sys.executable,
            **envs,
        }

    def node(self, rank):
        variables = {**os.environ, **self._envs, "SKYPILOT_NODE_RANK": str(rank)}
        log = (self._folder / f"node{len(self._nodes)}.log").open("w+")
        self._nodes.append(
            subprocess.Popen(
                [str(SKY / "node.sh")],
                env=variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )
        self._nodes[-1].log = log
        return self._nodes[-1]

    def close(self):
        for node in self._nodes:
            try:
                os.killpg(node.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            node.wait()
            node.log.close()


@pytest.fixture
def cluster(tmp_path, free_port):
    clusters = []

    def make(**envs):
        clusters.append(Cluster(tmp_path, free_port, **envs))
        return clusters[-1]

    yield make
    for each in clusters:
        each.close()


def output(node):
    return pathlib.Path(node.log.name).read_text()


@pytest.mark.nightly
def test_nodes_train_and_end_with_the_learner(cluster, tmp_path):
    """With token and TLS; the actors' node ends by itself, without an error, or SkyPilot would
    take the run for failed.
    """
    two = cluster(
        GAME="gym",
        ACTORS_PER_NODE="2",
        FLAGS="--env=CartPole-v1 --total_environment_frames=4000",
    )
    learner, actors = two.node(0), two.node(1)
    assert learner.wait(PATIENCE_S) == 0, output(learner)
    assert actors.wait(PATIENCE_S) == 0, output(actors)
    assert progress.read(tmp_path / "runs/pong").phase == "done"
    assert "--task=0" in output(actors) and "--task=1" in output(actors)


@pytest.mark.nightly
def test_two_learners_train_and_end(cluster, tmp_path):
    """With token and TLS between each and its actors, which share a node."""
    addresses = [f"localhost:{ports.free_port(apart=PORTS_APART)}" for _ in range(2)]
    three = cluster(
        GAME="gym",
        LEARNERS="2",
        ACTORS_PER_NODE="2",
        SKYPILOT_NUM_NODES="3",
        SEED_RL_ADDRESS=",".join(addresses),
        FLAGS="--env=CartPole-v1 --total_environment_frames=4000 --batch_size=8 --insecure",
    )
    nodes = [three.node(rank) for rank in range(3)]
    assert [node.wait(PATIENCE_S) for node in nodes] == [0, 0, 0], [*map(output, nodes)]
    assert progress.read(tmp_path / "runs/pong").phase == "done"
    assert progress.read(tmp_path / "runs/pong/learner-1").phase == "done"


def checking(folder):
    """A Python whose programs only check their arguments."""
    return stand_in(folder / "python", f'exec {sys.executable} "$@" --only_check_args')


@pytest.mark.parametrize("rank", [0, 1])
def test_programs_accept_the_arguments_of_the_task_file(cluster, tmp_path, rank):
    """A flag that the task file or node.sh misspells is found here."""
    node = cluster(PYTHON=str(checking(tmp_path)), ACTORS_PER_NODE="1").node(rank)
    assert node.wait(PATIENCE_S) == 0, output(node)
    assert f'"logdir": "{tmp_path}/runs/pong"' in output(node) or rank == 1
    assert f"--run_mode={'actor' if rank else 'learner'}" in output(node)


def arguments_of(cluster, tmp_path, rank, **envs):
    """The programs that a node starts, of a cluster of four with two learners, and the output."""
    show = stand_in(
        tmp_path / "python",
        f'if [ "$2" = seed_rl.cluster ]; then exec {sys.executable} - "$@" << END\n'
        "import os, sys\nfrom seed_rl.cluster.__main__ import become\n"
        "print(*become(sys.argv[3:], os.environ)[0])\nEND\nfi",
    )
    node = cluster(
        PYTHON=str(show),
        LEARNERS="2",
        SKYPILOT_NUM_NODES="4",
        SKYPILOT_NODE_IPS="10.0.0.1\n10.0.0.2\n10.0.0.3\n10.0.0.4",
        PYTHONPATH=str(SKY.parent),
        **envs,
    ).node(rank)
    assert node.wait(PATIENCE_S) == 0, output(node)
    return output(node).splitlines()


def test_each_of_several_learners_has_a_node(cluster, tmp_path):
    """Under names of its own, for which a certificate can be made, and with all lines of FLAGS."""
    tools = tmp_path / "bin"
    tools.mkdir()
    stand_in(tools / "sudo", f"cat > {tmp_path}/hosts")
    path = f"{tools}:{os.environ['PATH']}"
    exchange = "--learner_addresses=learner:8786,learner-1:8786"
    flags = {"SEED_RL_ADDRESS": "", "FLAGS": "--game=Pong\n--insecure\n", "ACTORS_PER_NODE": "3"}
    for rank in (0, 1):
        (learner,) = arguments_of(cluster, tmp_path, rank, PATH=path, **flags)
        flag = f"--learner_index={rank}"
        expected = {exchange, flag, "--num_envs=12", "--run_mode=learner", "--insecure"}
        assert expected <= {*learner.split()}
        named = (tmp_path / "hosts").read_text().splitlines()[-2:]
        assert named == ["10.0.0.1 learner # SEED RL", "10.0.0.2 learner-1 # SEED RL"]
    places = []
    for rank in (2, 3):
        for actor in arguments_of(cluster, tmp_path, rank, PATH=path, **flags):
            assert exchange in actor.split()
            places.append(tuple(f for f in actor.split() if f.startswith(("--server", "--task"))))
    one, other = "--server_address=learner:8686", "--server_address=learner-1:8686"
    assert sorted(places) == sorted(
        (address, f"--task={task}") for address in (one, other) for task in range(3)
    )


def test_several_learners_need_the_users_own_consent(cluster, tmp_path):
    """One learner's --insecure only says that the cloud's network is closed to its clients."""
    several = {"LEARNERS": "2", "SKYPILOT_NUM_NODES": "4", "SEED_RL_ADDRESS": "a:1,b:1"}
    several["PYTHON"] = str(checking(tmp_path))
    node = cluster(**several).node(1)
    assert node.wait(PATIENCE_S) == 2
    assert "2 learners exchange gradients" in output(node)
    node = cluster(FLAGS="--game=Pong --insecure", **several).node(1)
    assert node.wait(PATIENCE_S) == 0, output(node)


def test_a_node_that_cannot_reach_the_learner_says_so(cluster):
    flags = "--env=CartPole-v1 --connect_timeout_s=0"
    node = cluster(GAME="gym", FLAGS=flags, ACTORS_PER_NODE="1").node(1)
    assert node.wait(PATIENCE_S) == 4
    assert "error: No learner at localhost:" in output(node)


def test_an_actor_that_fails_ends_its_node(cluster, tmp_path):
    """With the actor's exit code, and nothing left running."""
    script = 'if [ "$SEED_RL_INDEX" = 1 ]; then exit 1; fi\nexec sleep 1000'
    fail = stand_in(tmp_path / "python", script)
    node = cluster(PYTHON=str(fail), ACTORS_PER_NODE="3").node(1)
    assert node.wait(PATIENCE_S) == 1, output(node)

    def gone():
        try:
            os.killpg(node.pid, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(gone)


@pytest.mark.parametrize("learners", [1, 3])
def test_too_few_nodes_are_refused(cluster, learners):
    node = cluster(SKYPILOT_NUM_NODES=str(learners), LEARNERS=str(learners)).node(0)
    assert node.wait(PATIENCE_S) == 2
    assert f"num_nodes must be at least {learners + 1}" in output(node)
    assert "use ./run_local.sh" in output(node)
