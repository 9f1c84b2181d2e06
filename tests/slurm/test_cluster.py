"""A real Slurm of three nodes on this machine: training survives what happens on clusters."""

from __future__ import annotations

import contextlib
import getpass
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from seed_rl.common.run_files import progress
from tests import helpers
from tests.helpers.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

NO_SLURM = 3  # Exit code of slurm/local_cluster.sh.
FRAMES = 16_000  # More than a minute, so that it does not end before the time limit.
TASK = (
    *("gym", "vtrace", "3", "4", "--env=CartPole-v1"),
    *("--env_wrappers=tests.helpers.slow_env:Slow", f"--total_environment_frames={FRAMES}"),
    "--save_checkpoint_secs=3",
)


# What Slurm's programs say when its controller is being started again.
CONTROLLER_AWAY = re.compile("connect failure|reset by peer|Zero Bytes|timed out|not connected")


class Cluster:
    """Commands within `slurm/local_cluster.sh`."""

    def __init__(self, repository, environment):
        self._repository = repository
        self._environment = environment
        self._waiting = {}  # Since when jobs have been waiting.

    def run(self, *command):
        return helpers.run(*command, env=self._environment, cwd=self._repository)

    def ask(self, *command):
        done = self.run(*command)
        deadline = time.monotonic() + PATIENCE_S
        while CONTROLLER_AWAY.search(done.stderr) and time.monotonic() < deadline:
            time.sleep(1)
            done = self.run(*command)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout.strip()

    def node(self, action, node):
        self.ask("slurm/local_cluster.sh", action, node)

    def repair(self):
        """Starts the nodes that a test has killed."""
        sinfo = ("sinfo", "--noheader", "--Node", "--format=%N")
        for node in self.ask(*sinfo, "--states=down").split():
            self.node("start_node", node)
        wait_until(lambda: len(self.ask(*sinfo, "--states=idle").split()) == 3)

    def job(self, job):
        """Slurm's record of a job, including finished ones."""
        shown = self.ask("scontrol", "--oneliner", "show", "job", job)
        return dict(re.findall(r"(\w+)=(\S*)", shown.splitlines()[0]))

    def jobs(self):
        return self.ask("squeue", "--noheader", "--array", "--format=%i").split()

    def restarts(self, *jobs):
        return [int(self.job(job)["Restarts"]) for job in jobs]

    def limit(self, job):
        """Sets the time limit of a running job to 40 to 100 s from now: it is in whole minutes."""
        hours, minutes, seconds = map(int, self.job(job)["RunTime"].split(":"))
        minutes += 60 * hours + (seconds + 40) // 60 + 1
        self.ask("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")

    def hurry(self):
        """Spares requeued jobs most of Slurm's pause of two minutes, and a second time limit.

        Not all of it: a node refuses a job that starts while it still revokes the credential of the
        one before ("Job credential revoked"), and Slurm then gives the job up.
        """
        waiting = self.ask("squeue", "--noheader", "--array", "--states=PD", "--format=%i %r")
        jobs = dict(line.split(maxsplit=1) for line in waiting.splitlines())
        self._waiting = {job: self._waiting.get(job, time.monotonic()) for job in jobs}
        for job, reason in jobs.items():
            waited_s = time.monotonic() - self._waiting[job]
            if reason != "Dependency" and waited_s > 10 and int(self.job(job)["Restarts"]):
                # (It may have started meanwhile.)
                self.run("scontrol", "update", f"JobId={job}", "StartTime=now", "TimeLimit=60")


@pytest.fixture(scope="module")
def cluster(repository):
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(repository)}
    process = subprocess.Popen(
        [repository / "slurm" / "local_cluster.sh", "sh", "-c", "echo $SLURM_CONF; cat"],
        env={**environment, "CPUS": "8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        configuration = process.stdout.readline().strip()
        if not configuration:
            _, errors = process.communicate()
            assert process.returncode == NO_SLURM and "Slurm does not start" not in errors, errors
            pytest.skip(errors.strip())
        yield Cluster(repository, {**environment, "SLURM_CONF": configuration})
    finally:
        process.communicate()  # Its input ends, and with it the cluster.


def test_a_partition_that_does_not_exist(cluster, tmp_path):
    done = cluster.run("slurm/submit.sh", "--partition=nope", *TASK, f"--logdir={tmp_path}/run")
    assert done.returncode == 1
    assert "error: Slurm refused the job: invalid partition specified: nope" in done.stderr
    assert "Partitions here: main." in done.stderr


def test_a_refused_array_takes_the_learner_along(cluster, tmp_path):
    """Guards a learner from waiting for actors that will never come."""
    options = ("--hold", "--actor-partition=nope")
    done = cluster.run("slurm/submit.sh", *options, *TASK, f"--logdir={tmp_path}/run")
    assert done.returncode == 1 and "error: Slurm refused the job: " in done.stderr
    wait_until(lambda: not cluster.jobs())


def test_the_queue_names_the_run_which_is_not_submitted_twice(cluster, tmp_path):
    submit = ("slurm/submit.sh", "--hold", "--evaluators=2", *TASK, f"--logdir={tmp_path}/pole")
    learner = re.match(r"Submitted: learner (\d+),", cluster.ask(*submit))[1]
    names = cluster.ask("squeue", "--noheader", "--format=%j").splitlines()
    roles = [f"pole-{role}-of-{learner}" for role in ("actor", "evaluator")]
    assert sorted(names) == sorted(["pole-learner", *roles])
    done = cluster.run(*submit)
    assert done.returncode == 2
    assert f"is in the queue already: learner {learner} (PENDING)" in done.stderr
    cluster.ask("scancel", f"--user={getpass.getuser()}")
    wait_until(lambda: not cluster.jobs())


@pytest.mark.nightly
def test_training_survives_time_limits_and_lost_nodes(cluster, tmp_path):
    """The whole life of a run: the time limit of all jobs, then the end of the learner's node and
    of an actor's. The jobs that are left find the learner again.
    """
    logdir = tmp_path / "run"

    def report():
        return progress.read(logdir)

    submitted = cluster.ask(
        "slurm/submit.sh",
        *("--time=10", "--signal=TERM@10", "--learner-cpus-per-task=2"),
        *("--actor-cpus-per-task=2", *TASK, f"--logdir={logdir}"),
    )
    learner, array = re.match(r"Submitted: learner (\d+), others (\d+) ", submitted).groups()
    actors = [f"{array}_{index}" for index in range(3)]
    assert (logdir / "slurm" / "secrets").stat().st_mode & 0o777 == 0o700
    assert (logdir / "slurm" / "secrets" / "token").stat().st_mode & 0o777 == 0o600

    # The time limit.
    wait_until(lambda: (found := report()) and found.frames > 0)
    for job in (learner, *actors):
        cluster.limit(job)
    wait_until(lambda: cluster.restarts(learner) == [1])
    stopped = report()
    assert stopped.phase == "stopped" and 0 < stopped.frames < FRAMES
    wait_until(lambda: cluster.hurry() or cluster.restarts(*actors) == [1, 1, 1])
    wait_until(lambda: cluster.hurry() or report().frames > stopped.frames)
    assert report().started > stopped.started

    # A token that differs.
    (tmp_path / "token").write_text("another token")
    (tmp_path / "token").chmod(0o600)
    os.utime(tmp_path / "token", (0, 0))  # A new one would be tried until the learner restarts.
    stranger = cluster.ask(
        *("sbatch", "--parsable", f"--output={tmp_path}/stranger.log"),
        *("slurm/job.sh", "SEED_RL_ROLE=actor", "SEED_RL_INDEX=0"),
        *(f"SEED_RL_ADDRESS_FILE={logdir}/slurm/address", f"SEED_RL_SECRETS={tmp_path}"),
        *(f"PYTHON={sys.executable}", f"LOGDIR={logdir}"),
        *(f"LEARNER={learner}", "--", *TASK),
    )
    wait_until(lambda: cluster.job(stranger)["JobState"] == "FAILED")
    assert cluster.job(stranger)["ExitCode"] == "2:0"
    assert "Start both with the same --auth_token_file" in (tmp_path / "stranger.log").read_text()

    # Two of three nodes.
    here = cluster.job(learner)["NodeList"]
    nodes = {actor: cluster.job(actor)["NodeList"] for actor in actors}
    other = min(set(nodes.values()) - {here})
    lost = [actor for actor in actors if nodes[actor] in (here, other)]
    cluster.node("kill_node", here)
    cluster.node("kill_node", other)
    frames = report().frames
    wait_until(lambda: cluster.hurry() or cluster.restarts(learner) == [2])
    wait_until(lambda: cluster.hurry() or cluster.job(learner)["JobState"] == "RUNNING")
    assert cluster.job(learner)["NodeList"] not in (here, other)
    assert [actor for actor in actors if cluster.restarts(actor) == [1]] == [
        actor for actor in actors if actor not in lost
    ]
    wait_until(lambda: cluster.hurry() or report().frames > frames)

    # The end.
    wait_until(lambda: cluster.hurry() or cluster.job(learner)["JobState"] == "COMPLETED")
    assert report().phase == "done" and report().frames >= FRAMES
    wait_until(lambda: not cluster.jobs())


def learners(logdir, index):
    """Process ids of the learner of this index; on its node, it has another."""
    wanted = {"--run_mode=learner", f"--logdir={logdir}", f"--learner_index={index}"}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted <= {*(entry / "cmdline").read_bytes().decode().split("\0")}:
                yield int(entry.name)


@pytest.mark.nightly
def test_several_learners_crash_and_finish(cluster, tmp_path):
    """A learner on each of two nodes: each is killed in turn, and all start again and find each
    other, at other ports. SIGTERM, which a time limit brings, saves and requeues their job.
    """
    cluster.repair()
    logdir, frames = tmp_path / "run", 2 * FRAMES  # With more actors, again past a time limit.
    submitted = cluster.ask(
        *("slurm/submit.sh", "--learner-cpus-per-task=2", "--time=60", "--signal=TERM@10"),
        *("gym", "vtrace", "4", "4", "--env=CartPole-v1", "--learners=2", "--insecure"),
        *("--env_wrappers=tests.helpers.slow_env:Slow", "--batch_size=8"),
        *("--save_checkpoint_secs=3", f"--total_environment_frames={frames}", f"--logdir={logdir}"),
    )
    learner, array = re.match(r"Submitted: learner (\d+), others (\d+) ", submitted).groups()
    folders = (logdir, logdir / "learner-1")

    def trains_on(before=(None, None)):
        """Waits for new learners that train, past a checkpoint of theirs; returns their reports."""

        def new():
            found = [progress.read(folder) for folder in folders]
            if all(r and r.phase == "training" and r.started not in before for r in found):
                return found
            return None

        reports = wait_until(lambda: cluster.hurry() or new())
        wait_until(lambda: progress.read(logdir).frames > reports[0].frames + 100)
        return reports

    reports = trains_on()
    nodes = cluster.job(learner)["NodeList"]
    assert len(cluster.ask("scontrol", "show", "hostnames", nodes).split()) == 2
    for victim in (1, 0):
        (pid,) = learners(logdir, victim)
        os.kill(pid, signal.SIGKILL)
        reports = trains_on([report.started for report in reports])
    log = (logdir / "slurm" / "learner.log").read_text()
    assert [f"learner {i} exited with code 137; starting all" in log for i in (0, 1)] == [True] * 2
    assert cluster.restarts(learner) == [0]

    cluster.limit(learner)
    wait_until(lambda: cluster.restarts(learner) == [1])
    reports = trains_on([report.started for report in reports])
    assert "Resuming after" in (logdir / "slurm" / "learner-1.log").read_text()

    wait_until(lambda: cluster.job(learner)["JobState"] == "COMPLETED")
    assert progress.read(logdir).phase == "done" and progress.read(logdir).frames >= frames
    wait_until(lambda: not cluster.jobs())
    for task in range(4):
        actor = cluster.job(f"{array}_{task}")
        assert (actor["JobState"], actor["ExitCode"]) == ("COMPLETED", "0:0")
