"""What the manifests make containers run: the programs accept it, and it trains."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

from seed_rl.cluster import __main__ as cluster
from seed_rl.common.run_files import progress
from tests.helpers import run, stand_in
from tests.helpers.secrets import run_script as make_secrets
from tests.helpers.system_helpers import Program
from tests.helpers.waiting import wait_until
from tests.k8s.containers import container
from tests.k8s.manifests import (
    CASES,
    K8S,
    documents,
    kubectl,
    pods,
    problems,
    render,
    script,
)

STOPPED = 75
IMAGES = ("--learner_image=seed-rl-gym:learner", "--actor_image=seed-rl-gym:actor")


@pytest.fixture(scope="module")
def secrets(tmp_path_factory):
    """The Secrets of a learner that is reached as localhost."""
    folder = tmp_path_factory.mktemp("secrets") / "of_run"
    assert make_secrets(folder, "localhost").returncode == 0
    done = script("create_secrets.sh", str(folder), "--dry_run")
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def submitted(*arguments):
    """The manifests that submit.sh would apply."""
    done = script("submit.sh", *IMAGES, "--dry_run", *arguments)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


def of_case(case, secrets):
    return [*documents(render(case)), *secrets]


def command(it):
    """The program that a container becomes."""
    return cluster.become(it.arguments, it.environment)[0]


def check_arguments(command, folder):
    return run(*command, "--only_check_args", cwd=folder)


@pytest.mark.parametrize("case", ["jobset", "insecure"])
def test_programs_accept_their_arguments(case, secrets, tmp_path):
    """A flag that a manifest misspells, or that no longer exists, is found here."""
    manifests = of_case(case, secrets)
    learner = command(container(manifests, "learner", tmp_path))
    actor = command(container(manifests, "actors", tmp_path, index=7))
    for each in (learner, actor):
        checked = check_arguments(each, tmp_path)
        assert checked.returncode == 0, checked.stderr
    assert (
        json.loads(check_arguments(learner, tmp_path).stdout)["logdir"] == f"{tmp_path}/runs/pong"
    )
    secure = case != "insecure"
    socket = f"unix:{tmp_path}/learner-0/proxy/learner.sock"
    address = f"--server_address={socket if secure else '0.0.0.0:8686'}"
    assert {"--run_mode=learner", address, "--num_envs=32"} <= {*learner}
    assert {"--run_mode=actor", "--server_address=learner:8686", "--task=7"} <= {*actor}
    assert ("--insecure" in learner) != secure
    for flag in ("--tls_ca=", "--tls_cert="):
        assert any(given.startswith(flag) for given in actor) == secure
    if secure:
        it = container(manifests, "learner", tmp_path, sidecar=True)
        proxy, variables = cluster.become(it.arguments, it.environment)
        assert proxy[0].endswith("haproxy")
        assert variables["PROXY_BIND"] == "0.0.0.0:8686"
        assert f"unix:{variables['PROXY_LEARNER']}" == socket


@pytest.mark.parametrize("case", sorted(set(CASES) - {"jobset", "insecure", "learners"}))
def test_options_run_the_same_commands(case, secrets, tmp_path):
    manifests, reference = of_case(case, secrets), of_case("jobset", secrets)
    for name in ("learner", "actors"):
        this, that = (command(container(m, name, tmp_path)) for m in (manifests, reference))
        assert this == that


def test_several_learners_find_each_other_by_the_names_of_their_pods(tmp_path):
    """And actors the learner that they belong to, by the index of their pod."""
    manifests = of_case("learners", [])
    (job_set,) = [d for d in manifests if d["kind"] == "JobSet"]
    # How the controllers of JobSets and of Jobs name them.
    subdomain = pods(job_set)["learner"]["subdomain"]
    names = [f"{job_set['metadata']['name']}-learner-0-{i}.{subdomain}" for i in range(2)]
    exchange = f"--learner_addresses={names[0]}:8786,{names[1]}:8786"
    learners = [command(container(manifests, "learner", tmp_path, index=i)) for i in range(2)]
    actor = command(container(manifests, "actors", tmp_path, index=5))
    for i, learner in enumerate(learners):
        flags = {exchange, f"--learner_index={i}", "--num_envs=16", "--insecure"}
        assert flags | {"--server_address=0.0.0.0:8686"} <= {*learner}
    place = {exchange, f"--server_address={names[1]}:8686", "--learner_index=1", "--task=1"}
    assert place <= {*actor}
    for each in (*learners, [*actor, "--insecure"]):  # Only a learner that starts asks for it.
        checked = check_arguments(each, tmp_path)
        assert checked.returncode == 0, checked.stderr


def test_several_learners_where_flags_cannot_be_checked(python_without_packages):
    options = (*IMAGES, "--learners=2", "--dry_run", "gym", "vtrace", "8")
    done = script("submit.sh", *options, PYTHON=python_without_packages)
    assert done.returncode == 2 and "--insecure allows" in done.stderr.splitlines()[-1]


def test_tensorboard_reads_the_volume(secrets, tmp_path):
    it = container(of_case("gpu", secrets), "tensorboard", tmp_path)
    assert {f"--logdir={tmp_path}/runs", "--host=0.0.0.0", "--port=6006"} <= {*command(it)}


@pytest.mark.nightly
def test_containers_train_are_evicted_resume_and_finish(secrets, short_path, free_port):
    """The processes of the pods that submit.sh asks for, here, with token and TLS."""
    task = ("gym", "vtrace", "2", "4", "--env=CartPole-v1", "--total_environment_frames=10000")
    manifests = [*submitted("--engine=plain", "--run=pole", *task), *secrets]
    started = []

    def start(name, index=0, sidecar=False):
        it = container(manifests, name, short_path, index, sidecar)
        it.environment["SEED_RL_ADDRESS"] = f"localhost:{free_port}"
        it.environment["SEED_RL_BIND"] = "127.0.0.1"
        started.append(Program("seed_rl.cluster", *it.arguments, environment=it.environment))
        return it, started[-1]

    def frames():
        report = progress.read(short_path / "runs/pole")
        return report.frames if report else 0

    try:
        _, proxy = start("learner", sidecar=True)
        it, learner = start("learner")
        actors = [start("actors", index)[1] for index in (0, 1)]
        wait_until(lambda: frames() > 0 or proxy.code is not None, running=learner)
        assert proxy.code is None, proxy.text()
        assert it.probe[0] == "python"
        probe = Program(*it.probe[2:], environment=it.environment)
        assert probe.wait() == 0, probe.text()

        actors[1].send(signal.SIGTERM)
        assert actors[1].wait() == STOPPED, actors[1].text()
        learner.send(signal.SIGTERM)
        assert learner.wait() == STOPPED, learner.text()
        assert 0 < frames() < 10000
        probe = Program(*it.probe[2:], environment=it.environment)
        assert probe.wait() == 1, probe.text()

        _, learner = start("learner")
        start("actors", 1)
        assert learner.wait() == 0, learner.text()
        assert "Resuming after" in learner.text()
        assert frames() >= 10000
    finally:
        for program in started:
            program.kill()


def test_the_overlay_to_copy_is_what_submit_applies():
    """But for what depends on the images."""
    overlay = run(kubectl(), "kustomize", K8S / "overlays/jobset", code=0)
    applied = re.sub("\n *imagePullPolicy: Always", "", render("jobset"))
    assert documents(overlay.stdout) == documents(applied)


def test_flag_files_need_not_be_in_the_image(tmp_path):
    """Shipped ones are named as from the root of the checkout; others may name further files."""
    (tmp_path / "inner").write_text("--seed=3")
    (tmp_path / "outer").write_text(f"# A comment\n\n  --batch_size=7\n--flagfile={tmp_path}/inner")
    task = ("atari", "r2d2", "8", "--flagfile=seed_rl/atari/r2d2_paper.flags", "--game=Pong")
    manifests = submitted(*task, f"--flagfile={tmp_path}/outer")
    (flags,) = [d for d in manifests if d["metadata"]["name"] == "flags"]
    lines = flags["data"]["flags"].split()
    shipped = (K8S.parent / "seed_rl/atari/r2d2_paper.flags").read_text().splitlines()
    assert lines == [
        *(line for line in shipped if line.startswith("--")),
        *("--game=Pong", "--batch_size=7", "--seed=3"),
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--flagfile=none",), "--flagfile=none: No such file"),
        (("--learning_rat=1",), "Unknown command line flag 'learning_rat'"),
        (("--logdir=/runs",), "--run=NAME"),
        (("--gpus=one",), "--gpus=one: write it like --gpus=2"),
        (("--memory=64GB",), "write it like --memory=32Gi"),
        (("--memory=08Gi",), "write it like --memory=32Gi"),
        (("--selector=l4",), "--selector=l4: write it like"),
        (("--tpu=tpu-v6e-slice/4x4",), "several machines"),
        (("--tpu=tpu-v6e-slice/2-4",), "write it like --tpu=tpu-v5"),
        (("--tpu=tpu-v6e-slice/1x1", "--gpus=1"), "GPUs or a TPU"),
        (("--with=gpus",), "choose from gpu"),
        (("--engine=plain", "--queue=q"), "--queue needs"),
        (("--learners=2", "--insecure", "--engine=plain"), "--learners=2 needs --engine=jobset"),
        (("--learners=2",), "2 learners exchange gradients at ports of"),
        (("--tensorboard_port=7",), "--tensorboard_port=7 is for ./run_local.sh alone"),
    ],
)
def test_submit_refuses_what_makes_no_sense(options, says):
    done = script("submit.sh", *IMAGES, *options, "--dry_run", "atari", "vtrace", "8")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and says in line


def test_where_flags_cannot_be_checked_that_is_said(python_without_packages):
    task = ("gym", "vtrace", "8", "--learning_rat=1")
    done = script("submit.sh", *IMAGES, "--dry_run", *task, PYTHON=python_without_packages)
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: flags were not checked, because")
    assert done.returncode == 0 and "--learning_rat=1" in done.stdout


def test_submit_wants_images():
    done = script("submit.sh", "--tpu=tpu-v6e-slice/1x1", "gym", "vtrace", "8")
    assert done.returncode == 2 and "makes no image with TensorFlow for TPUs" in done.stderr
    done = script("submit.sh", "--dry_run", "atari", "vtrace", "8", SEED_RL_REGISTRY="")
    assert done.returncode == 2 and "--learner_image" in done.stderr
    assert "docker/push.sh" in done.stderr


def test_submit_digests_queue_and_storage():
    digest = "sha256:" + "0" * 64
    manifests = submitted(
        *("--learner_image=here:5000/a", f"--actor_image=b/c@{digest}", "--queue=research"),
        *("--storage=1Ti", "--storage_class=fast", "--namespace=mine", "gym", "vtrace", "3"),
    )
    found = {document["kind"]: document for document in manifests}
    jobset = found["JobSet"]
    assert jobset["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert {document["metadata"]["namespace"] for document in found.values()} == {"mine"}
    assert found["PersistentVolumeClaim"]["spec"]["storageClassName"] == "fast"
    assert found["PersistentVolumeClaim"]["spec"]["resources"]["requests"]["storage"] == "1Ti"
    images = [pod["containers"][0]["image"] for pod in pods(jobset).values()]
    assert images == ["here:5000/a:latest", f"b/c@{digest}"]


def pods_of(*options):
    """The manifests of a run, and its learner's and its actors' pods."""
    rendered = submitted(*options, "gym", "vtrace", "3")
    assert [p for document in rendered for p in problems(document)] == []
    (jobset,) = [document for document in rendered if document["kind"] == "JobSet"]
    return rendered, *pods(jobset).values()


def test_submit_asks_for_resources():
    """They survive the components that change the same fields."""
    _, learner, actors = pods_of(
        *("--with=pools", "--gpus=4", "--cpus=16", "--memory=64Gi"),
        *("--actor_cpus=500m", "--actor_memory=1.5Gi"),
        *("--selector=cloud.google.com/gke-accelerator=nvidia-l4", "--selector=disk=ssd"),
    )
    assert learner["containers"][0]["resources"] == {
        "requests": {"cpu": "16", "memory": "64Gi"},
        "limits": {"memory": "64Gi", "nvidia.com/gpu": "4"},
    }
    # 15 minutes, and 20 s for each GiB that a replay may have.
    assert learner["containers"][0]["startupProbe"]["failureThreshold"] == 90 + 2 * 65
    assert learner["nodeSelector"] == {
        "cloud.google.com/gke-accelerator": "nvidia-l4",
        "disk": "ssd",
        "seed-rl/pool": "learner",
    }
    assert {"nvidia.com/gpu"} < {toleration["key"] for toleration in learner["tolerations"]}
    assert actors["containers"][0]["resources"] == {
        "requests": {"cpu": "500m", "memory": "1.5Gi"},
        "limits": {"memory": "1.5Gi"},
    }
    assert actors["nodeSelector"] == {"seed-rl/pool": "actors"}


@pytest.mark.parametrize("memory", ["64M", "67500000Ki", "67500000000"])
def test_the_startup_probe_waits_for_memory_in_any_unit(memory):
    _, learner, _ = pods_of(f"--memory={memory}")
    tries = 90 + 2 if memory == "64M" else 90 + 2 * 68
    assert learner["containers"][0]["startupProbe"]["failureThreshold"] == tries


def test_one_gpu_has_two_names():
    learners = [pods_of(option)[1] for option in ("--gpus=1", "--with=gpu")]
    for learner in learners:
        limits = learner["containers"][0]["resources"]["limits"]
        limits["nvidia.com/gpu"] = int(limits["nvidia.com/gpu"])
    assert learners[0] == learners[1]


def test_submit_asks_for_a_tpu():
    rendered, learner, _ = pods_of("--tpu=tpu-v5-lite-podslice/2x4")
    assert learner["containers"][0]["resources"]["limits"]["google.com/tpu"] == "8"
    assert learner["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    (flags,) = [d for d in rendered if d["metadata"]["name"] == "flags"]
    assert flags["data"]["flags"].split() == ["--tpu=local"]


def test_secrets_that_are_incomplete_are_named(tmp_path):
    (tmp_path / "token").write_text("secret")
    done = script("create_secrets.sh", str(tmp_path))
    assert done.returncode == 2
    assert f"cannot read {tmp_path}/proxy.pem" in done.stderr and "make_secrets.sh" in done.stderr


@pytest.mark.parametrize("name", ["submit.sh", "create_secrets.sh"])
def test_no_cluster(name, tmp_path, free_port):
    """kubectl's own message would be about schemas, and the script's about Secrets."""
    for file in ("token", "proxy.pem", "ca.pem", "actor-cert.pem", "actor-key.pem"):
        (tmp_path / file).write_text("a secret")
    config = tmp_path / "config"
    config.write_text(
        f"{{clusters: [{{name: c, cluster: {{server: 'http://localhost:{free_port}'}}}}], "
        "contexts: [{name: here, context: {cluster: c, user: u}}], current-context: here}"
    )
    arguments = [*IMAGES, "atari", "vtrace", "8"] if name == "submit.sh" else [str(tmp_path)]
    done = script(name, *arguments, KUBECONFIG=str(config))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: kubectl does not reach a cluster: ")
    assert "The context is here." in done.stderr


def answered(tmp_path, answers, *options):
    """`submit.sh` with a cluster that answers so, a `case` of sh, and kubectl's command lines."""
    log = tmp_path / "log"
    stand_in(
        tmp_path / "kubectl",
        f"""
        echo "$*" >> {log}
        case "$*" in
          kustomize*) exec {kubectl()} "$@" ;;
          {answers}
        esac
        """,
    )
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = script("submit.sh", *IMAGES, *options, "atari", "vtrace", "8", PATH=path)
    return done, log.read_text()


def test_a_namespace_that_holds_a_run(tmp_path):
    """Guards the ConfigMaps of a run, which its next pods would read."""
    done, log = answered(
        tmp_path,
        """
        *"get jobset"*) echo "error: the server has no resource type jobset" >&2; exit 1 ;;
        *"get job "*) printf 'job.batch/actors\\njob.batch/learner\\n' ;;
        *"get configmap run"*) echo pong ;;
        """,
        "--engine=plain",
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2
    assert "namespace seed-rl holds a run already: job.batch/actors, job.batch/learner" in line
    assert "(--run=pong)" in line and "delete job --selector=" in line
    assert "apply" not in log


def test_a_refused_object_stops_all(tmp_path):
    """Guards against a learner that starts, though the script says that nothing was applied."""
    refusal = """*dry-run=server*) echo 'PersistentVolumeClaim "runs" is invalid' >&2; exit 1 ;;"""
    done, log = answered(tmp_path, refusal)
    assert done.returncode == 2
    assert "--storage_class and --with=tensorboard" in done.stderr
    (applied,) = [line for line in log.splitlines() if " apply " in line]
    assert "--dry-run=server" in applied
