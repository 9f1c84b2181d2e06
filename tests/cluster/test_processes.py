"""`python -m seed_rl.cluster` as real processes: claims, the address file, exec, messages."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from concurrent import futures

import pytest

from seed_rl.cluster import address_file, indices
from seed_rl.cluster.__main__ import become, program_environment
from seed_rl.cluster.learners import PORTS_APART
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import progress
from seed_rl.common.system.file_lock import LearnerLock
from tests.helpers import PROGRAMS, run_python
from tests.helpers.secrets import make_secrets
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import PATIENCE_S, wait_until

TASK = ("gym", "vtrace", "2", "4", "--env=CartPole-v1")


class Claimant:
    """A process that claims an index in `folder`."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "index_claimant.py"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def index(self):
        return int(self.process.stdout.readline())

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def claimants(tmp_path):
    """Starts claimants; all end with the test."""
    started = []

    def start():
        started.append(Claimant(tmp_path / "indices"))
        return started[-1]

    yield start
    for claimant in started:
        claimant.kill()


@pytest.fixture
def cluster(tmp_path):
    """Starts `python -m seed_rl.cluster`; nothing outlives the test."""
    started = []

    def start(*flags, **environment):
        arguments = (*TASK, f"--logdir={tmp_path}/run", *flags)
        started.append(Program("seed_rl.cluster", *arguments, environment=environment))
        return started[-1]

    yield start
    for program in started:
        program.kill()


def test_each_process_claims_the_lowest_free_index(claimants, tmp_path):
    """Guards indices against two owners at once, and claims against outliving their process."""
    together = [claimants() for _ in range(3)]
    found = {claimant.index(): claimant for claimant in together}
    assert sorted(found) == [0, 1, 2]
    with pytest.raises(UserError, match="All 3 actors are running already, .*Start fewer actors"):
        indices.claim(tmp_path / "indices", "actor", 3)
    found[1].kill()
    assert claimants().index() == 1  # `cat`, which was exec'ed, held it until then.


def test_kinds_have_their_own_indices(tmp_path):
    assert indices.claim(tmp_path, "actor", 1) == 0
    assert indices.claim(tmp_path, "evaluator", 1) == 0


def test_a_place_that_does_not_do_for_claims(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Cannot claim an index in SEED_RL_INDEX_DIR=.*/file: "):
        indices.claim(tmp_path / "file", "actor", 1)


def test_the_address_is_waited_for_with_a_message(tmp_path, capsys):
    path, slept = tmp_path / "run" / "address", []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 61:
            address_file.publish(path, "host:86")

    assert address_file.wait_for(path, sleep=sleep) == "host:86"
    first, second = capsys.readouterr().err.splitlines()
    assert f"to {path} (for 0 s;" in first and "(for 60 s;" in second


def test_an_address_is_not_waited_for_for_ever(tmp_path):
    with pytest.raises(UserError, match="No learner has written its address to .* for 600 s") as e:
        address_file.wait_for(tmp_path / "address", sleep=lambda seconds: None)
    assert e.value.exit_code == 4  # Of an actor without a learner.


def test_an_address_file_that_cannot_be_written_or_read(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="Cannot write the learner's address to SEED_RL_ADDRESS_F"):
        address_file.publish(tmp_path / "file" / "address", "host:86")
    with pytest.raises(UserError, match="Cannot read the learner's address in SEED_RL_ADDRESS_F"):
        address_file.wait_for(tmp_path)
    (tmp_path / "address").write_bytes(b"\xff")
    with pytest.raises(UserError, match="Cannot read the learner's address in SEED_RL_ADDRESS_F"):
        address_file.wait_for(tmp_path / "address")


def several(count, folder, **environment):
    """The command lines of learners that meet through a file, as they become."""
    shared = {"SEED_RL_ADDRESS_FILE": str(folder / "address"), "SEED_RL_START": "now"}
    task = ("gym", "vtrace", "2", "4", f"--learners={count}", f"--logdir={folder}/run")
    with futures.ThreadPoolExecutor(count) as pool:
        roles = [{"SEED_RL_ROLE": "learner", "SEED_RL_INDEX": str(i)} for i in range(count)]
        started = [pool.submit(become, task, {**shared, **each, **environment}) for each in roles]
        return [each.result()[0] for each in started]


def test_several_learners_meet_at_the_addresses_of_this_start(tmp_path):
    """Guards them from the addresses of an earlier start, at which nobody is."""
    for name in ("address", "address-1"):
        (tmp_path / name).write_text("gone:86 before\n")
    commands = several(2, tmp_path)
    served, exchanges = [], set()
    for index, command in enumerate(commands):
        flags = dict(a.removeprefix("--").split("=", 1) for a in command if "=" in a)
        assert flags["learner_index"] == str(index)
        served.append(int(flags["server_address"].rpartition(":")[2]))
        exchanges.add(flags["learner_addresses"])
    host = socket.gethostname()
    assert exchanges == {",".join(f"{host}:{port + PORTS_APART}" for port in served)}
    # Actors find the learner that they belong to.
    client = {"SEED_RL_ADDRESS_FILE": str(tmp_path / "address"), "SEED_RL_ROLE": "actor"}
    actor, _ = become(("gym", "vtrace", "2", "4", "--learners=2"), {**client, "SEED_RL_INDEX": "1"})
    assert {f"--server_address={host}:{served[1]}", *exchanges} <= {
        part.removeprefix("--learner_addresses=") for part in actor
    }


@pytest.mark.parametrize("variables", [{"SEED_RL_START": ""}, {"SEED_RL_PROXY": "/p"}])
def test_several_learners_that_cannot_meet_through_a_file(tmp_path, variables):
    with pytest.raises(
        UserError, match="2 learners with .* need SEED_RL_START, .* cannot use a proxy"
    ):
        several(2, tmp_path, **variables)


@pytest.mark.parametrize(
    ("count", "index", "name"), [(1, 0, "run"), (2, 0, "run"), (2, 1, "run/learner-1")]
)
def test_a_second_start_leaves_the_addresses_of_the_first_alone(tmp_path, count, index, name):
    """Guards actors from connecting to a learner that will be refused."""
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / "address").write_text("first:86 before\n")
    variables = {"SEED_RL_ADDRESS_FILE": str(tmp_path / "address"), "SEED_RL_START": "now"}
    lock = LearnerLock(tmp_path / name)
    with pytest.raises(UserError, match="A learner is already running in --logdir"):
        _resume(tmp_path / "run", f"--learners={count}", SEED_RL_INDEX=str(index), **variables)
    lock.release()
    assert (tmp_path / "address").read_text() == "first:86 before\n"
    assert not (tmp_path / "address-1").exists()


@pytest.mark.slow
def test_learner_and_actors_meet_through_a_file_and_train(cluster, tmp_path, free_port):
    """The whole way, with claimed indices and a proxy; exit codes are the programs'."""
    shared = {
        "SEED_RL_ADDRESS_FILE": str(tmp_path / "address"),
        "SEED_RL_SECRETS": str(tmp_path / "secrets"),
    }
    make_secrets(tmp_path / "secrets", "localhost")
    proxied = {
        "SEED_RL_ADDRESS": f"localhost:{free_port}",
        "SEED_RL_PROXY": str(tmp_path / "learner"),
    }
    # Nobody starts an actor again that has given up, and a busy machine loads TensorFlow slowly.
    flags = ("--total_environment_frames=2000", "--seed=1", f"--connect_timeout_s={PATIENCE_S}")
    claimed = {"SEED_RL_INDEX_DIR": str(tmp_path / "indices"), "SEED_RL_ROLE": "actor"}
    actors = [cluster(*flags, **shared, **claimed) for _ in range(2)]
    wait_until(lambda: all("waiting for the learner" in a.text() for a in actors))
    proxy = cluster(*flags, **shared, **proxied, SEED_RL_ROLE="proxy")
    learner = cluster(*flags, **shared, **proxied, SEED_RL_ROLE="learner")
    assert learner.wait() == 0, learner.text()
    report = progress.read(tmp_path / "run")
    assert report is not None and report.phase == "done"
    for actor in actors:
        actor.send(signal.SIGTERM)
        assert actor.wait() == 0, actor.text()
    assert proxy.code is None
    claims = sorted(text[text.index("--task=") + 7] for text in (a.text() for a in actors))
    assert claims == ["0", "1"]


def test_a_waiting_actor_ends_with_sigterm(cluster, tmp_path):
    """Guards the first process of a container, for which SIGTERM has no default action; and an
    eviction before the program starts from being a success, to Kubernetes.
    """
    place = {"SEED_RL_INDEX": "0", "SEED_RL_ADDRESS_FILE": str(tmp_path / "address")}
    actor = cluster("--stopped_exit_code=75", SEED_RL_ROLE="actor", **place)
    wait_until(lambda: "waiting for the learner" in actor.text())
    actor.send(signal.SIGTERM)
    assert actor.wait() == 75


def _resume(folder, *flags, **environment):
    variables = {"SEED_RL_ROLE": "learner", "SEED_RL_ADDRESS": "learner:8686", **environment}
    return become(("gym", "vtrace", "2", f"--logdir={folder}", *flags), variables)


@pytest.mark.parametrize(
    "engine",
    [
        {"JOB_COMPLETION_INDEX": "0"},
        {"SLURM_RESTART_COUNT": "1"},
        {"CLUSTER_SPEC": '{"cluster": {}, "task": {"type": "workerpool0", "index": 0}}'},
    ],
)
def test_a_learner_that_an_engine_has_moved_waits_for_its_predecessor(
    tmp_path, engine, monkeypatch, capsys
):
    """Guards the run from ending because the old one, on a lost node, holds the lock still."""
    monkeypatch.setattr("seed_rl.cluster.__main__._PERIOD_S", 0.01)
    lock = LearnerLock(tmp_path)
    with futures.ThreadPoolExecutor(1) as pool:
        moved = pool.submit(_resume, tmp_path, **engine)
        wait_until(lambda: moved.done() or "predecessor" in capsys.readouterr().err)
        lock.release()
        assert "--run_mode=learner" in moved.result()[0]
    monkeypatch.setattr("seed_rl.cluster.__main__._PREDECESSOR_S", 0.05)
    lock = LearnerLock(tmp_path)
    with pytest.raises(UserError, match="A learner is already running in --logdir"):
        _resume(tmp_path, **engine)
    _resume(tmp_path, "--only_check_args", **engine)
    lock.release()


def test_a_learner_that_no_engine_has_moved_is_refused_at_once(tmp_path, capsys):
    lock = LearnerLock(tmp_path)
    with pytest.raises(UserError, match="A learner is already running in --logdir"):
        _resume(tmp_path, SLURM_RESTART_COUNT="0")
    assert capsys.readouterr().err == ""
    lock.release()


def test_a_logdir_that_cannot_be_looked_at_is_left_to_the_program(tmp_path):
    """As one without permission, which root always has."""
    command, _ = _resume(tmp_path / (300 * "x"))
    assert "--run_mode=learner" in command


def test_mistakes_are_one_line(cluster):
    mistaken = cluster(SEED_RL_ROLE="")
    assert mistaken.wait() == 2
    (line,) = mistaken.text().splitlines()
    assert line.startswith("error: Unknown role of this process")


def test_environment_of_the_programs():
    """TensorFlow must not take the cluster for its own; actors use one core each."""
    given = {"TF_CONFIG": "{}", "OMP_NUM_THREADS": "4"}
    actor = program_environment(["--run_mode=actor"], given)
    assert "TF_CONFIG" not in actor
    assert (actor["OMP_NUM_THREADS"], actor["OPENBLAS_NUM_THREADS"]) == ("4", "1")
    assert "OPENBLAS_NUM_THREADS" not in program_environment(["--run_mode=learner"], given)


def test_help_names_every_variable(repository):
    """Guards the table of variables from missing one that the code reads."""
    modules = ("seed_rl.cluster", "seed_rl.cluster.google_cloud")
    helps = [run_python("-m", module, "--help", code=0, cwd=repository) for module in modules]
    sources = "".join(p.read_text() for p in (repository / "seed_rl/cluster").glob("*.py"))
    read = set(re.findall(r'"(SEED_RL_\w+)"', sources))
    assert len(read) >= 8
    assert all(any(name in shown.stdout for shown in helps) for name in read)
