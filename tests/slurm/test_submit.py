"""slurm/submit.sh without a Slurm: what it would submit, and its messages."""

from __future__ import annotations

import os
import pathlib
import re
import sys

import pytest

from seed_rl.common.system.file_lock import LearnerLock
from tests import helpers

REVIEWED = pathlib.Path(__file__).parent / "dry_run.txt"
TASK = ("gym", "vtrace", "32", "4", "--env=CartPole-v1")


@pytest.fixture
def submit(repository, tmp_path):
    """Runs slurm/submit.sh with a directory for the run."""

    def run(*arguments, **environment):
        command = [repository / "slurm" / "submit.sh", *arguments, f"--logdir={tmp_path}/run"]
        variables = {"PYTHON": sys.executable, **environment}
        return helpers.run(*command, variables=variables, cwd=repository)

    return run


@pytest.fixture
def without_slurm(tmp_path):
    """A folder for PATH, with the programs of this machine except for sbatch."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for place in ("/usr/bin", "/bin"):
        for program in pathlib.Path(place).iterdir():
            link = tools / program.name
            if program.name != "sbatch" and not link.is_symlink():
                link.symlink_to(program)
    return tools


def test_dry_run(submit, repository, tmp_path):
    """The commands are those that were reviewed; nothing is written."""
    done = submit(
        *("--dry_run", "--account=me", "--time=1-0", "--learner-partition=gpu"),
        *("--learner-gres=gpu:1", "--learner-cpus-per-task=16", "--actor-partition=cpu"),
        *("--evaluators=2", *TASK, "--entropy_cost=0.01"),
    )
    assert done.returncode == 0, done.stderr
    text = done.stdout.replace(str(tmp_path), "TMP").replace(sys.executable, "PYTHON")
    assert text.replace(str(repository), "ROOT") == REVIEWED.read_text()
    assert not (tmp_path / "run").exists()


def test_memory_is_set_once(submit):
    """Slurm refuses jobs with --mem and --mem-per-cpu, which some sites prescribe."""

    def memory(*options, **environment):
        done = submit("--dry_run", *options, *TASK, **environment)
        return [line.strip(" \\") for line in done.stdout.splitlines() if "--mem" in line]

    assert memory("--learner-mem-per-cpu=4G") == ["--mem-per-cpu=4G", "--mem=2G"]
    assert memory("--mem-per-cpu=4G") == ["--mem-per-cpu=4G"] * 2
    assert memory(SBATCH_MEM_PER_CPU="4G") == []
    assert memory("--mem-bind=local") == [
        "--mem-bind=local",
        "--mem=8G",
        "--mem-bind=local",
        "--mem=2G",
    ]


def test_several_learners_are_one_job_with_a_node_for_each(submit):
    done = submit("--dry_run", "--learner-gres=gpu:1", *TASK, "--learners=4", "--insecure")
    assert done.returncode == 0, done.stderr
    learner, actors = done.stdout.split("sbatch ")[1:]
    nodes = ("--nodes=4", "--ntasks=4", "--ntasks-per-node=1")
    assert all(f"  {option} \\\n" in learner for option in (*nodes, "--gres=gpu:1", "NODES=4"))
    assert "--nodes" not in actors and "--array=0-31 " in actors
    assert all(" --learners=4 --insecure " in command for command in (learner, actors))


def test_several_learners_have_no_proxy(submit, tmp_path):
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o700)
    for name in ("token", "proxy.pem"):
        (secrets / name).write_text("secret")
    done = submit("--dry_run", f"--secrets={secrets}", *TASK, "--learners=2", "--insecure")
    assert done.returncode == 2
    assert f"error: several learners run without a proxy: remove {secrets}/proxy.pem" in done.stderr


def test_the_default_logdir_is_the_programs(repository, tmp_path):
    """Guards learner and actors that start elsewhere from a relative directory."""
    command = [repository / "slurm" / "submit.sh", "--dry_run", *TASK]
    variables = {"PYTHON": sys.executable, "PYTHONPATH": str(repository)}
    done = helpers.run(*command, variables=variables, cwd=tmp_path)
    assert f" --logdir={tmp_path}/runs/gym-vtrace-CartPole-v1\n" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--dry_run", *TASK, "--nonsense=1"), "Unknown command line flag 'nonsense'"),
        (("--dry_run", "--evaluators=x", *TASK), "--evaluators must be a number, not 'x'"),
        (("--dry_run", "-p", "gpu", *TASK), "-p: write options of sbatch in full, as --name=value"),
        (("--dry_run", "--time", "1-0", *TASK), "write --time=1-0, with an equals sign"),
        (("--dry_run", "--array=1-3", *TASK), "--array cannot be set here"),
        (
            ("--dry_run", "--learner-nodes=1", *TASK, "--learners=2", "--insecure"),
            "--nodes cannot be set with --learners=2: each learner has a node of its own",
        ),
        (("--dry_run", *TASK, "--logdir=gs://b/x"), "learner and actors meet in a directory"),
        (("--dry_run", "--secrets=/nowhere", *TASK), "Cannot read SEED_RL_SECRETS=/nowhere"),
    ],
)
def test_mistakes(submit, arguments, message, tmp_path):
    done = submit(*arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("error: ") and message in line
    assert not (tmp_path / "run").exists()


def test_secrets_that_others_can_read(submit, tmp_path):
    secrets = tmp_path / "secrets"
    secrets.mkdir(mode=0o755)
    (secrets / "token").write_text("token")
    done = submit("--dry_run", f"--secrets={secrets}", *TASK)
    assert done.returncode == 2
    assert done.stderr == f"error: others can read {secrets}: chmod 700 {secrets}\n"
    secrets.chmod(0o700)
    done = submit("--dry_run", "--secrets=~/secrets", *TASK, HOME=str(tmp_path))
    assert done.returncode == 0 and f"SEED_RL_SECRETS={secrets}" in done.stdout


def test_no_python(submit):
    done = submit("--dry_run", *TASK, PYTHON="/nowhere/python")
    assert done.returncode == 2
    assert "there is no /nowhere/python: run scripts/setup.sh gym first" in done.stderr


def test_a_python_without_packages(submit, python_without_packages):
    """The jobs would run it, so this is an error."""
    done = submit("--dry_run", *TASK, PYTHON=python_without_packages)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert line.startswith(
        "error: /usr/bin/python3 lacks the packages of SEED RL: run scripts/setup"
    )


def test_no_slurm(submit, tmp_path, without_slurm):
    done = submit(*TASK, PATH=str(without_slurm))
    assert done.returncode == 2
    assert "error: there is no sbatch here: run this on a machine of the cluster" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_logdir_that_cannot_be_written(submit, tmp_path, without_slurm):
    (without_slurm / "sbatch").symlink_to("/bin/false")
    (tmp_path / "run").touch()
    done = submit(*TASK, PATH=str(without_slurm))
    assert done.returncode == 2
    assert f"error: cannot write to {tmp_path}/run/slurm: choose a" in done.stderr


@pytest.fixture
def with_slurm(without_slurm, tmp_path):
    """A folder for PATH, with a Slurm that accepts all jobs and has job 7 in its queue."""
    helpers.stand_in(without_slurm / "sbatch", "echo 7")
    (without_slurm / "squeue").unlink(missing_ok=True)
    helpers.stand_in(without_slurm / "squeue", "[ $2 = --jobs=7 ] && echo PENDING")
    return str(without_slurm)


def test_a_logdir_that_another_job_holds(submit, tmp_path, with_slurm):
    """Guards a second learner, which would wait in the queue only to be refused."""
    assert submit(*TASK, PATH=with_slurm).returncode == 0
    done = submit(*TASK, PATH=with_slurm)
    (line,) = done.stderr.splitlines()[-1:]
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith(f"error: the run in {tmp_path}/run is in the queue already: learner 7 ")
    assert "(PENDING). To stop it: scancel 7" in line
    (tmp_path / "run/slurm/learner_job").write_text("6\n")  # Has left the queue.
    assert submit(*TASK, PATH=with_slurm).returncode == 0


def test_a_logdir_that_a_learner_without_a_job_holds(submit, tmp_path, with_slurm):
    (tmp_path / "run").mkdir()
    lock = LearnerLock(tmp_path / "run")
    done = submit(*TASK, PATH=with_slurm)
    assert done.returncode == 2
    assert f"a learner is already running in {tmp_path}/run (process {os.getpid()})" in done.stderr
    lock.release()
    assert submit(*TASK, PATH=with_slurm).returncode == 0


def test_a_shell_that_belongs_to_a_job(submit, with_slurm, tmp_path):
    """Guards our jobs from its variables: with its SLURM_MEM_PER_CPU, no srun of theirs starts."""
    helpers.stand_in(pathlib.Path(with_slurm) / "sbatch", f"env > {tmp_path}/env\necho 7")
    outer = {"SLURM_JOB_ID": "6", "SLURM_MEM_PER_CPU": "100", "SLURM_CONF": "/x"}
    assert submit(*TASK, PATH=with_slurm, **outer).returncode == 0
    seen = (tmp_path / "env").read_text().splitlines()
    assert [line for line in seen if line.startswith("SLURM_")] == ["SLURM_CONF=/x"]


@pytest.fixture
def learner_job(repository, tmp_path):
    """Runs a job, by default a learner's, with programs as its Python and srun."""

    def run(python, srun, code, role="learner", **environment):
        tools = tmp_path / "tools"
        tools.mkdir(exist_ok=True)
        (tmp_path / "slurm").mkdir(exist_ok=True)
        programs = {"srun": srun, "scancel": ":", "sleep": ":", "python": python}
        for name, body in {**programs, "squeue": "echo 5"}.items():
            helpers.stand_in(tools / name, body)
        settings = {"SEED_RL_ROLE": role, "LEARNER": 5, "SEED_RL_SECRETS": tmp_path, "RUN": "run"}
        settings |= {"PYTHON": tools / "python", "LOGDIR": tmp_path}
        environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "1"}
        command = [repository / "slurm" / "job.sh", *(f"{k}={v}" for k, v in settings.items())]
        return helpers.run(*command, "--", *TASK, code=code, env=environment)

    return run


def test_variables_of_the_users_shell_do_not_reach_the_job(learner_job):
    """Guards shells in which NODES means something else, or another run was started by hand."""
    others = {f"SEED_RL_{name}": "4" for name in ("INDEX", "ADDRESS", "PROXY", "START", "BIND")}
    done = learner_job(":", 'printf "%s\\n" "$@"; env', 0, NODES="4", **others)
    assert "seed_rl.cluster" in done.stdout.split() and "--insecure" in done.stdout.split()
    assert not [name for name in others if f"{name}=" in done.stdout]


def test_the_package_is_that_of_the_python(submit, learner_job, tmp_path):
    """Guards a wheel from the sources of a checkout in which no libraries were built."""
    program = f'echo "$PYTHONPATH" > {tmp_path}/path; exec {sys.executable} "$@"'
    python = helpers.stand_in(tmp_path / "python", program)
    assert submit("--dry_run", *TASK, PYTHON=str(python), PYTHONPATH="here").returncode == 0
    assert (tmp_path / "path").read_text() == "here\n"
    assert "PYTHONPATH=here\n" in learner_job(":", "env", 0, PYTHONPATH="here").stdout


def test_only_a_learner_that_did_not_run_is_tried_again(learner_job):
    """Guards minutes of retries after an import that fails, of which none can help."""
    runs_it = 'until [ "$1" = sh ]; do shift; done; exec "$@"'
    done = learner_job("echo ImportError; exit 1", runs_it, 1)
    assert done.stdout.count("ImportError") == 1 and "trying again" not in done.stderr
    done = learner_job(":", "echo no controller; exit 1", 1)
    assert done.stdout.count("no controller") == 10
    assert done.stderr.count("trying again") == 9


def test_a_node_without_haproxy(learner_job, tmp_path):
    """Guards a GPU that waits for actors that have nothing to connect to."""
    (tmp_path / "proxy.pem").touch()
    python = f'PATH=/nowhere exec {sys.executable} -c "{WITHOUT_HAPROXY}" "$@"'
    done = learner_job(python, "echo the learner runs", 2)
    assert done.stdout == ""
    assert done.stderr.startswith(
        "error: HAProxy, which authenticates actors on other machines, is"
    )


def test_certificates_that_the_proxy_cannot_use(learner_job, tmp_path):
    """Guards a GPU likewise: the proxy would be started again for ever."""
    for name in ("proxy.pem", "ca.pem"):
        (tmp_path / name).write_text("no certificate")
    done = learner_job(f'exec {sys.executable} "$@"', "echo the learner runs", 2)
    assert done.stdout == "" and "[ALERT]" in done.stderr
    (line,) = helpers.errors(done.stderr)
    assert line == f"error: HAProxy cannot use the files in {tmp_path}; it says why above."


def test_the_proxys_sockets_have_short_paths(learner_job, tmp_path):
    """Guards sites whose TMPDIR is long: Linux allows a socket's path 107 characters."""
    folder = tmp_path / ("x" * 80)
    folder.mkdir()
    (tmp_path / "proxy.pem").touch()
    done = learner_job(":", "env", 0, TMPDIR=str(folder))
    (path,) = re.findall("SEED_RL_PROXY=(.*)", done.stdout)
    assert len(path) < 40 and not pathlib.Path(path).parent.exists()


def test_an_actor_whose_token_is_new_waits_for_the_learners_restart(learner_job, tmp_path):
    """Guards actors that start while the secrets of a run change. A wrong token is final."""
    (tmp_path / "slurm").mkdir()
    for age, name in enumerate(("slurm/ran", "token")):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (age, age))
    refuse = f"echo refused | tee -a {tmp_path}/log; [ $(wc -l < {tmp_path}/log) -lt 3 ] ||"
    done = learner_job(":", f"{refuse} touch {tmp_path}/slurm/ran; exit 2", 2, role="actor")
    assert done.stdout.count("refused") == 3


WITHOUT_HAPROXY = """
import runpy, shutil, sys
shutil.which = lambda *args, **kwargs: None
runpy.run_module(sys.argv.pop(2), run_name='__main__')
"""
