"""gcp/submit.py and the scenario scripts: the exact jobs, the API's own schema, and messages.

The expected jobs are in jobs/; after a wanted change, `python -m tests.gcp.test_submit` writes them
anew, for review.
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from gcp import gcloud, job, machines, submit
from seed_rl.common.errors import UserError

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = pathlib.Path(__file__).parent / "jobs"
PLACE = {
    "SEED_RL_GCP_PROJECT": "my-lab",
    "SEED_RL_GCP_REGION": "us-central1",
    "SEED_RL_GCP_BUCKET": "my-runs",
    "SEED_RL_GCP_SERVICE_ACCOUNT": "seed-rl@my-lab.iam.gserviceaccount.com",
    "SEED_RL_TAG": "1.0",
}
MACHINES = ("--learner_machine=n1-standard-8", "--actor_machine=n2-standard-8")
NETWORK = "--network=projects/12345/global/networks/lab"
SCENARIOS = {
    **{path.stem: (path.name,) for path in sorted((REPOSITORY / "gcp").glob("*.sh"))},
    "train_atari_spot": ("train_atari.sh", "--spot=all", "--game=Breakout"),
    "train_football_spot_actors": ("train_football_scoring.sh", "--spot=actors", NETWORK),
    "sweep_spot": ("sweep_atari.sh", "--spot=all", "--trials=50"),
}


def _run(
    script: str, *arguments: str, path: str = "/usr/bin:/bin", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script with the system's Python, as users without this project's packages do."""
    return subprocess.run(
        [REPOSITORY / "gcp" / script, *arguments],
        env={"PATH": path, **PLACE, **environment},
        cwd="/",
        capture_output=True,
        text=True,
    )


def _jobs(text: str) -> list[dict]:
    return list(yaml.safe_load_all(text))


def _parse(*arguments: str, **environment: str) -> submit.Request:
    return submit.parse(arguments, {**PLACE, **environment})


@pytest.mark.parametrize("name", SCENARIOS)
def test_dry_runs_are_the_reviewed_jobs(name: str) -> None:
    done = _run(*SCENARIOS[name], "--dry_run")
    assert done.stderr == ""
    assert done.stdout == (EXPECTED / f"{name}.yaml").read_text("utf-8")


def test_every_reviewed_job_is_of_a_scenario() -> None:
    assert {path.stem for path in EXPECTED.iterdir()} == set(SCENARIOS)


def test_the_yaml_means_what_was_to_be_submitted() -> None:
    odd = ("--evaluators=2", "--gin_bindings=a = 'b:'", '--gin_bindings=c = "#"')
    request = _parse("mujoco", "ppo", "40", "8", *MACHINES, *odd)
    [(_, spec)] = submit.commands(request)
    assert yaml.safe_load(job.to_yaml(spec)) == spec
    assert spec["workerPoolSpecs"][2] == {}  # By position: pool 3 are the evaluators.
    study = f"--study={REPOSITORY}/gcp/studies/atari_vtrace.json"
    [(_, spec)] = submit.commands(_parse("atari", "vtrace", "4", *MACHINES, study))
    assert yaml.safe_load(job.to_yaml(spec)) == spec  # YAML has ideas of its own about 5e-05.


# The API's own schema.


def _validate(spec: dict) -> None:
    types = pytest.importorskip(
        "google.cloud.aiplatform_v1.types", reason="needs google-cloud-aiplatform"
    )
    from google.protobuf import json_format

    tuning = "trialJobSpec" in spec
    message = types.HyperparameterTuningJob if tuning else types.CustomJobSpec
    json_format.ParseDict(spec, message.pb(message()), ignore_unknown_fields=False)


@pytest.mark.parametrize("name", SCENARIOS)
def test_jobs_fit_the_schema_of_the_api(name: str) -> None:
    for spec in _jobs((EXPECTED / f"{name}.yaml").read_text("utf-8")):
        _validate(spec)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("workerPoolSpecs:", "workerPoolSpec:"),
        ("replicaCount: 1", "replicas: 1"),
        ('"STANDARD"', '"STANDART"'),
        ('"NVIDIA_TESLA_A100"', '"NVIDIA_A100"'),
        ("replicaCount: 1", 'replicaCount: "one"'),
        ("    imageUri:", "    image:"),
        ('timeout: "604800s"', 'timeout: "7 days"'),
    ],
)
def test_the_schema_finds_planted_mistakes(right: str, wrong: str) -> None:
    text = (EXPECTED / "train_atari.yaml").read_text("utf-8")
    assert right in text
    [spec] = _jobs(text.replace(right, wrong))
    _validate(_jobs(text)[0])
    with pytest.raises(Exception, match="(?i)failed to parse|no field named|invalid|duration"):
        _validate(spec)


# What is rented is what is used.


def test_every_scenario_rents_machines_for_its_actors_and_the_image_for_its_gpus() -> None:
    for name in SCENARIOS:
        actors, places = 0, 0
        for spec in _jobs((EXPECTED / f"{name}.yaml").read_text("utf-8")):
            for position, pool in enumerate(spec.get("trialJobSpec", spec)["workerPoolSpecs"]):
                if not pool or position == 3:  # Evaluators.
                    continue
                container = pool["containerSpec"]
                variables = {v["name"]: v["value"] for v in container["env"]}
                gpu = "acceleratorCount" in pool["machineSpec"]
                assert container["imageUri"].endswith("-gpu") == gpu
                if "SEED_RL_ACTORS_PER_MACHINE" in variables:
                    assert not gpu
                    actors = int(container["args"][2])
                    each = int(variables["SEED_RL_ACTORS_PER_MACHINE"])
                    places += pool["replicaCount"] * each
        assert actors <= places < actors + each


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("a2-highgpu-2g",), ("NVIDIA_TESLA_A100", 2)),
        (("g2-standard-24",), ("NVIDIA_L4", 2)),
        (("a2-ultragpu-1g", "NVIDIA_A100_80GB", 1), ("NVIDIA_A100_80GB", 1)),
        (("n1-standard-16", "NVIDIA_TESLA_T4"), ("NVIDIA_TESLA_T4", 1)),
        (("n1-standard-16", "NVIDIA_TESLA_V100", 8), ("NVIDIA_TESLA_V100", 8)),
        (("n2-standard-8",), (None, 0)),
        (("a9-newgpu-4g", "NVIDIA_NEW", 4), ("NVIDIA_NEW", 4)),
    ],
)
def test_machines(given: tuple, expected: tuple) -> None:
    shape = machines.shape(*given)
    assert (shape.machine_type, shape.accelerator, shape.accelerators) == (given[0], *expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("a2-highgpu-2g", None, 4), "a2-highgpu-2g comes with 2 NVIDIA_TESLA_A100, not with 4"),
        (("g2-standard-8", "NVIDIA_TESLA_T4"), "comes with 1 NVIDIA_L4"),
        (("n2-standard-8", "NVIDIA_TESLA_T4"), "takes no accelerators: attach .* n1 machine"),
        (("n1-standard-8", "NVIDIA_L4"), "NVIDIA_L4 cannot be attached to n1-standard-8"),
        (("n1-standard-8", "NVIDIA_TESLA_T4", 3), "has 1, 2, 4 NVIDIA_TESLA_T4, not 3"),
        (("n1-standard-8", None, 2), "needs to know which"),
        (("a2-highgpu-3g",), "no machine type that this program knows"),
    ],
)
def test_machines_that_do_not_exist(given: tuple, message: str) -> None:
    with pytest.raises(UserError, match=message):
        machines.shape(*given)


def test_accelerators_are_those_of_the_api() -> None:
    types = pytest.importorskip(
        "google.cloud.aiplatform_v1.types", reason="needs google-cloud-aiplatform"
    )
    known = {kind.name for kind in types.AcceleratorType}
    ours = {name for name, _ in machines._INCLUDED.values()} | machines._ATTACHED.keys()
    assert ours <= known


@pytest.mark.parametrize(
    ("flags", "rented", "message"),
    [
        (["--training_devices=gpu:1,gpu:2"], 2, "use gpu:2, but 2 GPUs are rented"),
        (["--inference_devices=gpu:0"], 0, "use gpu:0, but rents none"),
        (["--inference_devices=gpu:0", "--training_devices=gpu:1"], 4, "uses only gpu:0, gpu:1"),
        (["--tpu=local"], 0, "rent GPUs only"),
        (["--inference_devices=gpu:0", "--training_devices=auto"], 4, None),
        ([], 4, None),
    ],
)
def test_gpus_used_are_gpus_rented(flags: list[str], rented: int, message: str | None) -> None:
    if message is None:
        machines.check_devices(flags, rented)
        return
    with pytest.raises(UserError, match=message):
        machines.check_devices(flags, rented)


# The command line.


def test_later_values_win_and_flag_files_are_spelled_out() -> None:
    plan = _parse(
        *("atari", "r2d2", "32", "8", "--flagfile=seed_rl/atari/r2d2_paper.flags", "--game=Pong"),
        *(*MACHINES, "--tag=2", "--game=Breakout", "--batch_size=32", "--actors=5", "--tag=3"),
    ).plan
    assert plan.arguments[:4] == ("atari", "r2d2", "5", "8") and plan.actors == 5
    assert "--burn_in=40" in plan.arguments and "--batch_size=32" in plan.arguments
    assert [a for a in plan.arguments if a.startswith("--game")] == ["--game=Breakout"]
    assert not any(a.startswith(("--flagfile", "--batch_size=64")) for a in plan.arguments)
    assert plan.learner_image.endswith("/seed-rl-atari:3")
    assert plan.logdir == "gs://my-runs/runs/atari-r2d2-Breakout"


def test_gin_bindings_add_up() -> None:
    bindings = ("--gin_bindings=a = 1", "--gin_bindings=b = 2")
    plan = _parse("mujoco", "ppo", "4", *MACHINES, *bindings).plan
    assert [a for a in plan.arguments if a.startswith("--gin")] == list(bindings)


def test_places_can_be_overridden() -> None:
    request = _parse(
        *("gym", "vtrace", "4", *MACHINES, "--bucket=gs://other/folder", "--name=my run"),
        *("--registry=docker.io/me", "--token_secret=projects/p/secrets/s/versions/3"),
    )
    plan = request.plan
    assert plan.logdir == "gs://other/folder/runs/my_run"
    assert plan.learner_image == "docker.io/me/seed-rl-base:1.0"
    assert plan.actor_image == "docker.io/me/seed-rl-base-actor:1.0"
    assert plan.token_secret == "projects/p/secrets/s/versions/3"
    logdir = _parse("gym", "vtrace", "4", *MACHINES, "--logdir=gs://b/x").plan
    assert logdir.arguments[-1] == "--logdir=gs://b/x" == f"--logdir={logdir.logdir}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("atari", "r2d2", "4"),
            "--learner_machine, --actor_machine: give a value, or set SEED_RL_",
        ),
        (("atary", "r2d2", "4", *MACHINES), "Unknown game 'atary'"),
        (("gym", "vtrace", *MACHINES), "Expected GAME AGENT ACTORS"),
        (("gym", "vtrace", "4", *MACHINES, "--logdir=/tmp/x"), "must be gs://BUCKET"),
        (("gym", "vtrace", "4", *MACHINES, "--spot=actors"), "--spot=actors rents .*--network="),
        (
            ("gym", "vtrace", "4", *MACHINES, "--spot=actors", NETWORK, "--study=x.json"),
            "trials are single jobs",
        ),
        (("gym", "vtrace", "4", *MACHINES, "--study=/nowhere.json"), "--study=/nowhere.json"),
        (("gym", "vtrace", "4", *MACHINES, "--flagfile=nowhere.flags"), "nowhere.flags: No such"),
        (
            ("gym", "vtrace", "4", *MACHINES, "--actor_machine=g2-standard-8"),
            "has accelerators, which actors do not use",
        ),
        (
            ("gym", "vtrace", "4", *MACHINES, "--actor_machine=custom"),
            "does not say how many CPUs.*--actors_per_machine",
        ),
        (("gym", "vtrace", "4", *MACHINES, "--task=3"), "--task cannot be set here"),
    ],
)
def test_mistakes_are_one_message(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        submit.commands(_parse(*arguments))


# gcloud. The first two texts are what version 528.0.0 wrote; the others, which need an account,
# follow issues and documentation in public.


@pytest.mark.parametrize(
    ("output", "mend"),
    [
        (
            "ERROR: (gcloud.ai.custom-jobs.create) You do not currently have an active account "
            "selected.\nPlease run:\n\n  $ gcloud auth login\n",
            "You are not logged in, or no longer: gcloud auth login",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) Invalid value for [region]: Available values "
            "are [africa-south1, asia-east1], but found [mars].",
            "--region=us-central1 is no region",
        ),
        (
            "Using endpoint [https://us-central1-aiplatform.googleapis.com/]\n"
            "ERROR: (gcloud.ai.custom-jobs.create) PERMISSION_DENIED: Permission "
            "'aiplatform.customJobs.create' denied on resource "
            "'//aiplatform.googleapis.com/projects/my-lab/locations/us-central1' (or it may not "
            "exist).\n- '@type': type.googleapis.com/google.rpc.ErrorInfo\n"
            "  reason: IAM_PERMISSION_DENIED",
            "roles/aiplatform.user on --project=my-lab",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) PERMISSION_DENIED: Vertex AI API has not been "
            "used in project 12345 before or it is disabled.\n  reason: SERVICE_DISABLED",
            "gcloud services enable aiplatform.googleapis.com",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) PERMISSION_DENIED: Permission denied on "
            "resource project my-lab.\n  reason: CONSUMER_INVALID",
            "no project --project=my-lab",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) PERMISSION_DENIED: You do not have permission "
            "to act as service_account: seed-rl@x. (iam.serviceAccounts.actAs)",
            "roles/iam.serviceAccountUser",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) HttpError accessing <https://mars-"
            "aiplatform.googleapis.com/>: Unsupported region for Vertex AI, select from ['us-",
            "--region=us-central1 is no region",
        ),
        (
            "ERROR: (gcloud.artifacts.docker.images.describe) Image not found: us-docker.pkg.dev/x",
            "docker/build.sh and docker/push.sh",
        ),
        (
            "ERROR: (gcloud.storage.buckets.describe) gs://my-runs not found: 404.",
            "gcloud storage buckets create gs://my-runs --location=us-central1 --project=my-lab",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) RESOURCE_EXHAUSTED: The following quota metrics "
            "exceed quota limits: aiplatform.googleapis.com/custom_model_training_nvidia_a100_gpus",
            "ask for more",
        ),
        ("ERROR: (gcloud.x) Something new.\n", "gcloud failed: ERROR: (gcloud.x) Something new."),
        ("", "gcloud failed: no output"),
    ],
)
def test_failures_of_gcloud_say_what_to_do(output: str, mend: str) -> None:
    message = gcloud.explain(output, _parse("gym", "vtrace", "4", *MACHINES).names)
    assert mend in message and "\n" not in message
    if "ERROR" in output:
        assert output.partition("ERROR: ")[2].splitlines()[0] in message


def test_without_gcloud(tmp_path: pathlib.Path) -> None:
    for name in ("bash", "dirname", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "python3").symlink_to(pathlib.Path(sys.executable).resolve())
    done = _run("train_mujoco.sh", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"error: gcloud is not installed: .*--dry_run needs neither.*\n", done.stderr
    )


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs gcloud")
def test_the_real_gcloud_without_an_account(tmp_path: pathlib.Path) -> None:
    path = f"{pathlib.Path(shutil.which('gcloud') or '').parent}:/usr/bin:/bin"
    environment = {"CLOUDSDK_CONFIG": str(tmp_path), "HOME": str(tmp_path)}
    done = _run("train_mujoco.sh", path=path, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: You are not logged in: gcloud auth login\n"
    # Its parser accepts the command, and it would go on to the job.
    place = ["--project=my-lab", "--region=us-central1"]
    job_file = f"--config={EXPECTED / 'train_mujoco.yaml'}"
    create = ["gcloud", "ai", "custom-jobs", "create", *place, "--display-name=x", job_file]
    refused = subprocess.run(
        [*create, "--quiet"], env={"PATH": path, **environment}, capture_output=True, text=True
    )
    message = gcloud.explain(refused.stderr, _parse("gym", "vtrace", "4", *MACHINES).names)
    assert message.startswith("You are not logged in, or no longer: gcloud auth login.")


def test_what_is_handed_to_gcloud_is_the_dry_run(tmp_path: pathlib.Path) -> None:
    # A program of that name that keeps what it is given; nothing answers for the service.
    keeper = tmp_path / "gcloud"
    keeper.write_text(
        '#!/bin/sh\necho "$@" >> "$0.calls"\n'
        'for a; do case "$a" in --config=*) cat "${a#--config=}" > "$0.job";; esac; done\n'
        "echo me@example.com\n"
    )
    keeper.chmod(0o755)
    done = _run("train_atari.sh", path=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    expected = (EXPECTED / "train_atari.yaml").read_text("utf-8")
    assert (tmp_path / "gcloud.job").read_text() == expected.split("# JOB.yaml:\n")[1]
    registry, ends = "us-central1-docker.pkg.dev/my-lab/seed-rl", (":1.0-gpu", "-actor:1.0")
    calls = (tmp_path / "gcloud.calls").read_text().splitlines()
    assert [call.split(" --")[0] for call in calls] == [
        "auth list",
        "storage buckets describe gs://my-runs",
        *(f"artifacts docker images describe {registry}/seed-rl-atari{end}" for end in ends),
        "ai custom-jobs create",
    ]
    assert "tensorboard --logdir=gs://my-runs/runs/atari-r2d2-Pong" in done.stdout


def test_gin_files_of_scenarios_exist_in_the_image() -> None:
    for name in SCENARIOS:
        text = (EXPECTED / f"{name}.yaml").read_text("utf-8")
        for path in re.findall(r"--gin_config=([^\"]+)", text):
            assert (REPOSITORY / path).is_file()


if __name__ == "__main__":
    for path in EXPECTED.glob("*"):
        path.unlink()
    for scenario, command in SCENARIOS.items():
        made = _run(*command, "--dry_run")
        sys.stderr.write(made.stderr)
        (EXPECTED / f"{scenario}.yaml").write_text(made.stdout, "utf-8")
