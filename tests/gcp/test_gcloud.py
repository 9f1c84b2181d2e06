"""Google's command line program: its messages, and what it is given."""

from __future__ import annotations

import pathlib
import re
import shutil
import sys

import pytest

from gcp import gcloud, job
from tests import helpers
from tests.gcp.scenarios import MACHINES, NETWORK, parse, run, submitted

# The first two texts are what version 528.0.0 wrote; the others, which need an account, follow
# issues and documentation in public.


@pytest.mark.parametrize(
    ("output", "fix"),
    [
        (
            "ERROR: (gcloud.ai.custom-jobs.create) You do not currently have an active account "
            "selected.\nPlease run:\n\n  $ gcloud auth login\n",
            "You are not logged in, or your login has expired: gcloud auth login",
        ),
        (
            "ERROR: (gcloud.ai.custom-jobs.create) Invalid value for [region]: Available values "
            "are [africa-south1, asia-east1], but found [mars].",
            "--region=us-central1 is not a region",
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
            "--region=us-central1 is not a region",
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
def test_failures_of_gcloud_say_what_to_do(output: str, fix: str) -> None:
    message = gcloud.explain(output, parse("gym", "vtrace", "4", *MACHINES).names)
    assert fix in message and "\n" not in message
    if "ERROR" in output:
        assert output.partition("ERROR: ")[2].splitlines()[0] in message


def test_without_gcloud(tmp_path: pathlib.Path) -> None:
    for name in ("bash", "dirname", "env"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    (tmp_path / "python3").symlink_to(pathlib.Path(sys.executable).resolve())
    done = run("scenario.sh", "train_mujoco", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(
        r"error: gcloud is not installed: .*--dry_run needs neither.*\n", done.stderr
    )


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("gcloud") is None, reason="needs gcloud")
def test_the_real_gcloud_without_an_account(tmp_path: pathlib.Path) -> None:
    path = f"{pathlib.Path(shutil.which('gcloud') or '').parent}:/usr/bin:/bin"
    environment = {"CLOUDSDK_CONFIG": str(tmp_path), "HOME": str(tmp_path)}
    done = run("scenario.sh", "train_mujoco", path=path, **environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: You are not logged in: gcloud auth login\n"
    # Its parser accepts the command, and it would go on to the job.
    place = ["--project=my-lab", "--region=us-central1"]
    (job_file := tmp_path / "job.yaml").write_text(job.to_yaml(*submitted("train_mujoco").values()))
    create = ["gcloud", "ai", "custom-jobs", "create", *place, "--display-name=x"]
    create += [f"--config={job_file}", "--quiet"]
    refused = helpers.run(*create, env={"PATH": path, **environment})
    message = gcloud.explain(refused.stderr, parse("gym", "vtrace", "4", *MACHINES).names)
    assert message.startswith("You are not logged in, or your login has expired: gcloud auth")


def test_what_is_handed_to_gcloud_is_the_dryrun(tmp_path: pathlib.Path) -> None:
    # A program of that name that keeps what it is given; nothing answers for the service.
    helpers.stand_in(
        tmp_path / "gcloud",
        'echo "$@" >> "$0.calls"\n'
        'for a; do case "$a" in --config=*) cat "${a#--config=}" > "$0.job";; esac; done\n'
        "echo me@example.com",
    )
    done = run("scenario.sh", "train_atari", path=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    [expected] = submitted("train_atari").values()
    assert (tmp_path / "gcloud.job").read_text() == job.to_yaml(expected)
    registry, ends = "us-central1-docker.pkg.dev/my-lab/seed-rl", (":1.0-gpu", "-actor:1.0")
    calls = (tmp_path / "gcloud.calls").read_text().splitlines()
    assert [call.split(" --")[0] for call in calls] == [
        "auth list",
        "storage buckets describe gs://my-runs",
        *(f"artifacts docker images describe {registry}/seed-rl-atari{end}" for end in ends),
        "ai custom-jobs list",
        "ai custom-jobs create",
    ]
    assert "tensorboard --logdir=gs://my-runs/runs/atari-r2d2-Pong" in done.stdout
    assert done.stdout.startswith("Price: about $6.")


def test_actors_that_are_refused_leave_no_learner_behind_unseen(tmp_path: pathlib.Path) -> None:
    """Guards money: the learner's job runs, and costs, until it is cancelled."""

    def submit(rm: str) -> str:
        helpers.stand_in(
            tmp_path / "gcloud",
            f'case "$*" in *"storage rm"*) echo "ERROR: (gcloud.storage.rm) {rm}" >&2\n'
            "exit 1 ;; *create*-actors*) echo 'ERROR: RESOURCE_EXHAUSTED' >&2; exit 1 ;; "
            "*create*) echo created ;; *' list --project'*) ;; *) echo me ;; esac",
        )
        done = run(
            "scenario.sh", "train_atari", "--spot=actors", NETWORK, path=f"{tmp_path}:/usr/bin:/bin"
        )
        assert done.returncode == 2
        return done.stdout + done.stderr

    answer = submit("The following URLs matched no objects or files:")
    assert "created" in answer and "quota" in answer
    assert "first job has been submitted" in answer and "cancel JOB --project" in answer
    answer = submit("HTTPError 403: you cannot delete this")
    assert "created" not in answer and "403" in answer


def test_a_run_whose_job_has_not_ended_is_not_submitted_again(tmp_path: pathlib.Path) -> None:
    """Guards the files of the run: a second learner would wait, cost, and be refused."""
    jobs = tmp_path / "jobs"
    helpers.stand_in(
        tmp_path / "gcloud",
        f'case "$*" in *" list --project"*) cat {jobs} ;; *create*) echo created ;; '
        "*) echo me ;; esac",
    )
    name, path = "atari-r2d2-Pong", f"{tmp_path}:/usr/bin:/bin"
    jobs.write_text(
        f"{name}\tJOB_STATE_FAILED\tprojects/1/locations/x/customJobs/6\n"
        f"{name}-2\tJOB_STATE_RUNNING\tprojects/1/locations/x/customJobs/7\n"
    )
    done = run("scenario.sh", "train_atari", path=path)
    assert done.returncode == 0 and "created" in done.stdout, done.stderr
    with jobs.open("a") as file:
        file.write(f"{name}-actors\tJOB_STATE_PENDING\tprojects/1/locations/x/customJobs/8\n")
    done = run("scenario.sh", "train_atari", path=path)
    assert done.returncode == 2 and "created" not in done.stdout
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: The run {name} has a job already: ")
    assert "gcloud ai custom-jobs cancel projects/1/locations/x/customJobs/8 --project" in line
