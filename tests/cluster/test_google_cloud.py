"""A replica of a custom job on Google Cloud: its token, its actors, its learner's exit code."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from seed_rl.cluster import address_file, google_cloud, tuning
from seed_rl.cluster.google_api import GoogleApi
from seed_rl.cluster.learners import PORTS_APART
from seed_rl.cluster.machine import Machine
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import progress
from seed_rl.launch import ports
from tests.helpers.clock import Clock
from tests.helpers.google_services import CUT_OFF, Services, storage
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import PATIENCE_S, wait_until

SECRET = "projects/lab/secrets/seed-rl-token"


@pytest.fixture
def services() -> Iterator[Services]:
    services = Services()
    yield services
    services.close()


class _KnownMachine(GoogleApi):
    """Asks for no machine's token, so that failures are those of the service itself."""

    def _token(self) -> str:
        return "machine"


def _api(services: Services, kind: type[GoogleApi] = GoogleApi) -> GoogleApi:
    place = f"http://{services.host}"
    return kind(place, place, place, sleep=lambda _: None)


def _cluster(pool: int, index: int = 0, actors: int = 3, host: str = "learner:2222") -> str:
    """CLUSTER_SPEC as the service sets it."""
    cluster = {"workerpool0": [host], "workerpool1": [f"actor-{i}:2222" for i in range(actors)]}
    task = {"type": f"workerpool{pool}", "index": index}
    return json.dumps({"cluster": cluster, "environment": "cloud", "task": task})


# The token.


def test_the_token_comes_from_secret_manager(services: Services) -> None:
    services.failures = [503]  # Passes: is tried again.
    assert _api(services).secret(SECRET) == b"from Secret Manager\n"
    assert services.requests[-1] == f"/v1/{SECRET}/versions/latest:access"
    _api(services).secret(f"{SECRET}/versions/7")
    assert services.requests[-1] == f"/v1/{SECRET}/versions/7:access"


@pytest.mark.parametrize(
    ("status", "fix"),
    [(403, "secretAccessor on projects/lab"), (404, "gcloud secrets create seed-rl-token")],
)
def test_a_secret_that_cannot_be_read(services: Services, status: int, fix: str) -> None:
    services.failures = [status]
    with pytest.raises(UserError, match=f"Cannot read the secret .*HTTP {status}.*{fix}"):
        _api(services, _KnownMachine).secret(SECRET)


@pytest.mark.parametrize(
    ("failures", "fix"),
    [
        ([403], "objectAdmin on the bucket"),
        ([404], "no such bucket"),
        ([400], "Bad Request."),
    ],
)
def test_a_bucket_that_cannot_be_written(services: Services, failures: list[int], fix: str) -> None:
    services.failures = failures
    with pytest.raises(UserError, match=f"Cannot write gs://runs/x .*HTTP {failures[0]}.*{fix}"):
        _api(services, _KnownMachine).write("gs://runs/x", b"10.0.0.7:2222")
    assert services.failures == []


def test_names_that_are_no_secrets() -> None:
    with pytest.raises(UserError, match="'seed-rl-token' is not a secret name: use projects/"):
        GoogleApi().secret("seed-rl-token")


def test_elsewhere_than_on_google_cloud() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # Nobody listens.
        host = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(UserError, match="meant to run on a machine of Google Cloud"):
            GoogleApi(host, sleep=lambda _: None).secret(SECRET)


def test_the_token_is_in_a_file_of_this_user_only(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(google_cloud, "GoogleApi", lambda: _api(services))
    environment = {"SEED_RL_TOKEN_SECRET": SECRET}
    google_cloud._prepare_token(environment)
    path = pathlib.Path(environment["SEED_RL_SECRETS"]) / "token"
    assert path.read_bytes() == b"from Secret Manager\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_redirects_do_not_take_the_token_elsewhere(services: Services) -> None:
    other = Services()
    services.location = f"http://{other.host}/"
    with pytest.raises(UserError, match="HTTP 302"):
        _api(services, _KnownMachine).secret(SECRET)
    assert other.requests == []
    other.close()


def test_objects_are_written_and_read(services: Services) -> None:
    with storage() as address:
        api = GoogleApi(f"http://{services.host}", storage=address)
        assert api.read("gs://runs/pong/address") is None
        api.write("gs://runs/pong/address", b"10.0.0.7:2222")
        assert api.read("gs://runs/pong/address") == b"10.0.0.7:2222"
        assert google_cloud.wait_for_address(api, "gs://runs/pong/address") == "10.0.0.7:2222"
        api.write("gs://runs/pong/address", b"done")
        assert google_cloud.wait_for_address(api, "gs://runs/pong/address") is None


def test_a_bucket_that_is_away_for_minutes_ends_no_actors(
    services: Services, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nor do failures of the metadata server. Each read fails after five tries and is logged."""
    place = "gs://runs/pong/address"
    for api in (_api(services), _api(services, _KnownMachine)):
        services.failures = [408, 429, 500, 502, 504] + [503] * 5 * 20 + [CUT_OFF] * 5
        assert google_cloud.wait_for_address(api, place, sleep=lambda _: None)
        said = capfd.readouterr().err
        assert said.count("HTTP Error 503: Service Unavailable. Trying") == 20
        assert said.count("IncompleteRead") == 1 and said.count("Trying again.") == 22
    services.failures = [403]  # That does not pass.
    with pytest.raises(UserError, match="objectAdmin"):
        google_cloud.wait_for_address(api, place, sleep=lambda _: None)


# Which actors and evaluators.


@pytest.mark.parametrize("evaluators", [0, 1, 7])
def test_each_actor_and_evaluator_is_on_one_machine(evaluators: int) -> None:
    machines = []
    for machine in range(3):
        environment = {"CLUSTER_SPEC": _cluster(1, machine), "SEED_RL_ACTORS_PER_MACHINE": "4"}
        machines.append(google_cloud.tasks(10, evaluators, environment))
    assert sorted(sum(machines, [])) == list(range(10 + evaluators))
    evaluating = [sum(task >= 10 for task in tasks) for tasks in machines]
    assert max(evaluating) - min(evaluating) <= 1


def test_a_job_of_actors_alone_has_its_first_machine_in_pool_0() -> None:
    # Pool 0 is always there and has one replica; the others follow.
    first = {"CLUSTER_SPEC": _cluster(0), "SEED_RL_FIRST_MACHINE": "0"}
    second = {"CLUSTER_SPEC": _cluster(1), "SEED_RL_FIRST_MACHINE": "1"}
    assert [google_cloud.machine_index(e) for e in (first, second)] == [0, 1]


def test_pool_0_of_a_job_of_actors_alone_starts_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards --spot=actors: the pool is a learner's, and there is no index of an actor."""
    started: list[int] = []

    class Started:
        def __init__(self, start: object):
            pass

        def run(self, tasks: list[int]) -> int:
            started.extend(tasks)
            return 0

    monkeypatch.setattr(google_cloud, "Machine", Started)
    monkeypatch.setenv("CLUSTER_SPEC", _cluster(0))
    monkeypatch.setenv("SEED_RL_ROLE", "actor")
    monkeypatch.setenv("SEED_RL_ACTORS_PER_MACHINE", "2")
    assert google_cloud.main(["gym", "vtrace", "4", "--logdir=gs://runs/pole"]) == 0
    assert started == [0, 1]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "CLUSTER_SPEC is not set"),
        ({"CLUSTER_SPEC": _cluster(1, 5)}, "Machine 5 has nothing to do.*Rent fewer replicas"),
        (
            {"CLUSTER_SPEC": _cluster(1), "SEED_RL_ACTORS_PER_MACHINE": "0"},
            "SEED_RL_ACTORS_PER_MACHINE must be a number, from 1 upwards",
        ),
    ],
)
def test_environments_that_make_no_sense(environment: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        google_cloud.tasks(5, 2, environment)


# Several actors on one machine.


def _exits(code: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])


def test_failed_actors_start_again_and_others_do_not() -> None:
    codes = {0: [1, 0], 1: [2], 2: [3], 3: [4] * 7 + [1, 0]}
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.sleep(100 * seconds)

    machine = Machine(lambda index: _exits(codes[index].pop(0)), clock, sleep)
    assert machine.run(range(4)) in (2, 3)
    assert not any(codes.values())


def test_an_actor_that_fails_at_once_every_time_is_given_up(
    capfd: pytest.CaptureFixture[str],
) -> None:
    starts = []
    clock = Clock()

    def start(index: int) -> subprocess.Popen[bytes]:
        starts.append(clock.now)
        process = _exits(1)
        process.wait()
        return process

    assert Machine(start, clock, clock.sleep).run([7]) == 1
    pauses = [later - earlier for earlier, later in zip(starts, starts[1:], strict=False)]
    assert len(starts) == 6 and pauses == sorted(pauses) and pauses[-1] >= 16
    assert "actor 7 exited with code 1, for the 6th time" in capfd.readouterr().err


def test_a_machine_that_is_taken_away_stops_its_actors() -> None:
    """Also while one waits for the learner's address."""
    # 143 and not 0: the service must not take the replica for finished.
    program = """
import subprocess, time
from seed_rl.cluster.machine import Machine

def start(task):
    if task == 2:
        print("waiting", flush=True)
        time.sleep(1000)
    return subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL)

raise SystemExit(Machine(start).run(range(3)))
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"waiting\n"
    children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = children.read_text().split()
    assert len(pids) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 143
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments with which `cluster.main` is called, which does nothing else."""
    seen: list[str] = []

    def main(arguments: list[str], *_: object) -> int:
        seen.extend(arguments)
        return 0

    monkeypatch.setattr(google_cloud.cluster, "main", main)
    return seen


def test_a_learner_that_is_stopped_does_not_look_finished(
    monkeypatch: pytest.MonkeyPatch, called: list[str]
) -> None:
    """Not even if it is stopped before it has started training."""
    monkeypatch.setenv("CLUSTER_SPEC", _cluster(0))
    given = ["gym", "vtrace", "2", "--logdir=gs://runs/pole"]
    google_cloud.main(given)
    assert called == ["--stopped_exit_code=143", *given, "--insecure"]


def test_only_a_learner_that_may_write_tells_the_actors_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Guards spot actors from being drawn to a second learner, which is refused."""
    written: list[bytes] = []
    monkeypatch.setattr(GoogleApi, "write", lambda self, place, content: written.append(content))
    monkeypatch.setattr(google_cloud, "own_address", lambda environment: "10.0.0.7:2222")
    monkeypatch.setenv("CLUSTER_SPEC", _cluster(0))
    monkeypatch.setenv("SEED_RL_ADDRESS_OBJECT", "gs://runs/pole.learner_address")
    given = ["gym", "vtrace", "2", "--logdir=gs://runs/pole"]

    def trains(arguments: list[str], after_copy: Callable[[pathlib.Path], None]) -> int:
        after_copy(pathlib.Path("/tmp/pole"))
        return 0

    monkeypatch.setattr(google_cloud.cluster, "main", lambda *_: 2)
    assert google_cloud.main(given) == 2 and not written
    monkeypatch.setattr(google_cloud.cluster, "main", trains)
    assert google_cloud.main(given) == 0
    assert written == [b"10.0.0.7:2222", b"done"]


def test_several_learners_need_the_users_own_consent(
    monkeypatch: pytest.MonkeyPatch, called: list[str]
) -> None:
    """They exchange gradients at another port, which asks for no token."""
    task = ["gym", "vtrace", "2", "--learners=2", "--logdir=/mnt/nfs/runs/pole"]
    for pool in ("workerpool0", "workerpool2"):
        spec = {"cluster": {}, "task": {"type": pool, "index": 0}}
        monkeypatch.setenv("CLUSTER_SPEC", json.dumps(spec))
        google_cloud.main(task)
    assert called == 2 * ["--stopped_exit_code=143", *task]


# Tuning.


def test_a_trial_reports_its_return_once_per_progress(tmp_path: pathlib.Path) -> None:
    reporter = tuning.Reporter(
        {"CLOUD_ML_TRIAL_ID": "3", "CLOUD_ML_HP_METRIC_FILE": f"{tmp_path}/tuning/metrics"}
    )
    reporter.report(tmp_path)  # No progress yet.
    assert not (tmp_path / "tuning").exists()
    writer = progress.ProgressWriter(tmp_path, total_frames=1000, period_s=0)
    for frames, mean in ((10, None), (20, 1.5), (20, 1.5), (30, 2.0)):
        writer.update("training", frames=frames, episode_return_mean=mean)
        reporter.report(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "tuning" / "metrics").open()]
    assert [(x["trial"], x[tuning.METRIC], x["global_step"]) for x in lines] == [
        ("3", "1.5", "20"),
        ("3", "2.0", "30"),
    ]


def test_each_trial_has_its_own_logdir() -> None:
    arguments = ["gym", "vtrace", "2", "--logdir=gs://runs/sweep/"]
    assert google_cloud.with_trial(arguments, {}) == arguments
    trial = google_cloud.with_trial(arguments, {"CLOUD_ML_TRIAL_ID": "3"})
    assert trial == [*arguments, "--logdir=gs://runs/sweep/trial-3"]


# All together.


@pytest.mark.nightly
def test_a_job_trains_loses_its_learner_and_finishes(
    services: Services, tmp_path: pathlib.Path, free_port: int
) -> None:
    """Two machines of a job with real programs: the bucket is an emulator, the machines are ours.

    The learner is killed with -9, a new machine resumes from the bucket, and the service's view is
    right: it is not done when it is stopped, and done when all frames are used.
    """
    task = ("gym", "vtrace", "2", "2", "--env_name=CartPole-v1", "--logdir=gs://runs/pole")
    task += ("--total_environment_frames=40000", "--save_checkpoint_secs=1", "--seed=1")
    with storage() as address:
        shared = {"STORAGE_EMULATOR_HOST": address, "GCE_METADATA_HOST": services.host}
        host = f"127.0.0.1:{free_port}"
        started = []

        def replica(pool: int, **environment: str) -> Program:
            cluster = {"CLUSTER_SPEC": _cluster(pool, host=host), "TMPDIR": str(tmp_path)}
            cluster["SEED_RL_COPY_SECS"] = "1"
            program = Program(
                "seed_rl.cluster.google_cloud",
                *task,
                environment={**shared, **cluster, **environment},
            )
            started.append(program)
            return program

        try:
            actors = replica(1, SEED_RL_ACTORS_PER_MACHINE="2")
            first = replica(0)
            wait_until(lambda: "Copied checkpoints/ckpt-" in first.text())
            first.kill()
            GoogleApi(f"http://{services.host}", storage=address).write(
                "gs://runs/pole/mirror.json", b'{"owner": null}'
            )
            second = replica(0)
            wait_until(lambda: "Copied checkpoints/ckpt-" in second.text())
            assert "Resuming from gs://runs/pole/checkpoints/ckpt-" in second.text()
            second.send(signal.SIGTERM)
            assert second.wait() == 143
            third = replica(0)
            assert third.wait() == 0
            actors.send(signal.SIGTERM)
            assert actors.wait() in (0, 143)  # The learner may have told them first.
        finally:
            for program in started:
                program.kill()


@pytest.mark.nightly
def test_a_job_of_two_learners_loses_one_and_finishes(tmp_path: pathlib.Path) -> None:
    """Pools 0 and 2, and actors of both on one machine. The service restarts each replica alone."""
    names = ("workerpool0", "workerpool2")
    cluster = {name: [f"localhost:{ports.free_port(apart=PORTS_APART)}"] for name in names}
    cluster["workerpool1"] = ["actors:2222"]
    task = ("gym", "vtrace", "2", "4", "--env_name=CartPole-v1", f"--logdir={tmp_path}/run")
    task += ("--learners=2", "--insecure", "--batch_size=8", "--save_checkpoint_secs=1")
    task += ("--total_environment_frames=40000",)
    started = []

    def replica(pool: str) -> Program:
        spec = {"cluster": cluster, "task": {"type": pool, "index": 0}}
        environment = {"CLUSTER_SPEC": json.dumps(spec), "SEED_RL_ACTORS_PER_MACHINE": "2"}
        program = Program("seed_rl.cluster.google_cloud", *task, environment=environment)
        started.append(program)
        return program

    def trains(start: float) -> bool:
        found = progress.read(tmp_path / "run")
        return found is not None and found.started > start and found.frames > 0

    try:
        replica("workerpool1")
        first, second = replica(names[0]), replica(names[1])
        wait_until(lambda: trains(0), running=first)
        start = progress.read(tmp_path / "run").started
        second.kill()
        again = replica(names[1])
        assert first.wait() == 6, first.text()
        first = replica(names[0])
        wait_until(lambda: trains(start), running=first)
        assert (first.wait(), again.wait()) == (0, 0), first.text() + again.text()
    finally:
        for program in started:
            program.kill()


@pytest.mark.nightly
def test_actors_in_another_job_find_the_learner_and_end_with_it(
    services: Services, tmp_path: pathlib.Path
) -> None:
    """Spot actors: both jobs know each other only by an object in the bucket."""
    (tmp_path / "token").write_text("shared by both")
    (tmp_path / "token").chmod(0o600)
    host = address_file.own_address()
    task = ("gym", "vtrace", "2", "2", "--env_name=CartPole-v1", "--logdir=gs://runs/spot")
    task += ("--total_environment_frames=1000", "--reconnect_timeout_s=3")
    evaluators = {"SEED_RL_EVALUATORS": "1"}
    with storage() as address:
        shared = {
            "STORAGE_EMULATOR_HOST": address,
            "GCE_METADATA_HOST": services.host,
            "SEED_RL_ADDRESS_OBJECT": "gs://runs/spot.learner_address",
            "SEED_RL_SECRETS": str(tmp_path),
            "SEED_RL_COPY_SECS": "1",
            **evaluators,
        }
        actor = {"SEED_RL_ROLE": "actor", "SEED_RL_ACTORS_PER_MACHINE": "1"}
        roles = [
            {"CLUSTER_SPEC": _cluster(0), **actor},
            {"CLUSTER_SPEC": _cluster(1), **actor, "SEED_RL_FIRST_MACHINE": "1"},
            {"CLUSTER_SPEC": _cluster(0, host=host)},
        ]
        programs = [
            Program("seed_rl.cluster.google_cloud", *task, environment={**shared, **role})
            for role in roles
        ]
        try:
            assert programs[2].wait() == 0, programs[2].text()
            assert [program.wait() for program in programs[:2]] == [0, 0]
        finally:
            for program in programs:
                program.kill()
