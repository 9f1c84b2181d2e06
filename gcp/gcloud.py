"""Google's command line program: running it, and explaining its failures."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from seed_rl.common.errors import UserError

_LONGEST = 300  # Characters of gcloud's own message.

# gcloud's errors, and what to do about them. The first match counts.
_FIXES = (
    (
        r"do not currently have an active account|Reauthentication|invalid_grant|"
        r"could not be refreshed|UNAUTHENTICATED|Application Default Credentials",
        "You are not logged in, or your login has expired: gcloud auth login",
    ),
    (
        r"has not been used in project|SERVICE_DISABLED|API \[[^]]*\] not enabled",
        "Enable the services in this project: gcloud services enable aiplatform.googleapis.com "
        "artifactregistry.googleapis.com secretmanager.googleapis.com storage.googleapis.com "
        "--project={project}",
    ),
    (
        r"iam\.serviceAccounts\.actAs|serviceAccountUser",
        "You may not start jobs as --service_account={service_account}: you need the role "
        "roles/iam.serviceAccountUser on it",
    ),
    (
        r"(?i)service account [^\n]*(does not exist|not found)",
        "There is no --service_account={service_account}: docs/deployment/google_cloud.md has the "
        "commands that create it",
    ),
    (
        r"CONSUMER_INVALID|USER_PROJECT_DENIED|not a valid project|"
        r"(?i:project [^\n]*(does not exist|not found|may not exist))",
        "There is no project --project={project}, or you have no access to it: gcloud projects "
        "list",
    ),
    (
        r"(?i)unsupported region|Invalid value for \[region\]|"
        r"location [^\n]*(is not supported|not found|does not exist)|"
        r"invalid location|Name or service not known|Failed to resolve|"
        r"unknown region",
        "--region={region} is not a region of Vertex AI, or cannot be reached. "
        "https://cloud.google.com/vertex-ai/docs/general/locations lists them",
    ),
    (
        r"(?i)(image|manifest|tag)[^\n]*(not found|unknown|does not exist)|NAME_UNKNOWN",
        "The image has not been pushed: docker/build.sh and docker/push.sh, with "
        "SEED_RL_REGISTRY={registry}",
    ),
    (
        r"(?i)gs://[^\n]*not found|bucket[^\n]*(not found|does not exist)",
        "There is no bucket gs://{bucket}: gcloud storage buckets create gs://{bucket} "
        "--location={region} --project={project}",
    ),
    (
        r"RESOURCE_EXHAUSTED|(?i:quota)",
        "The project's quota does not allow these machines: ask for more (console, IAM & Admin, "
        "Quotas, service Vertex AI API; spot machines have quotas of their own), or rent fewer",
    ),
    (
        r"PERMISSION_DENIED|does not have [^\n]*(permission|access)|Permission '[^']*' denied",
        "Your account lacks the permission: you need roles/aiplatform.user on --project={project}, "
        "and the project must be spelled right",
    ),
)


def explain(output: str, names: dict[str, str]) -> str:
    """What to do after a failure of gcloud.

    Args:
      output: what it wrote to its error stream.
      names: project, region, bucket, registry and service_account of the run.

    Returns:
      One message: gcloud's own error line, then the fix if it is known.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    error = (errors or lines[-1:] or ["no output"])[0][:_LONGEST]
    for pattern, fix in _FIXES:
        if re.search(pattern, output):
            return f"{fix.format(**names)}. (gcloud: {error})"
    return f"gcloud failed: {error}"


def run(arguments: Sequence[str], names: dict[str, str]) -> str:
    """Runs gcloud and returns what it wrote to its output.

    Args:
      arguments: those after `gcloud`.
      names: as of `explain`.

    Raises:
      UserError: it is not installed, or it failed.
    """
    if shutil.which("gcloud") is None:
        raise UserError(
            "gcloud is not installed: https://cloud.google.com/sdk/docs/install, then "
            "gcloud auth login. (--dry_run needs neither.)"
        )
    done = subprocess.run(["gcloud", *arguments, "--quiet"], capture_output=True, text=True)
    if done.returncode:
        raise UserError(explain(done.stderr, names))
    return done.stdout
