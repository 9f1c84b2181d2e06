"""Calls of gcp/submit.py and of the scenario scripts."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from typing import Any

import yaml

from gcp import submit
from tests import helpers
from tests.helpers import REPOSITORY

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
    **{
        name: (name,)
        for name in re.findall(
            r"^  (\w+)\) set", (REPOSITORY / "gcp/scenario.sh").read_text(), re.MULTILINE
        )
    },
    "train_dmlab_rooms_watermaze": ("train_dmlab_rooms_watermaze",),
    "train_atari_spot": ("train_atari", "--spot=all", "--game=Breakout"),
    "train_football_spot_actors": ("train_football_scoring", "--spot=actors", NETWORK),
    "sweep_spot": ("sweep_atari", "--spot=all", "--trials=50"),
}


@functools.cache
def submitted(scenario: str) -> dict[str, dict[str, Any]]:
    """The jobs of a scenario's dry run, by the calls of gcloud."""
    done = run("scenario.sh", *SCENARIOS[scenario], "--dry_run")
    assert done.stderr == ""
    jobs = {}
    for part in done.stdout.split("---\n"):
        command, label, spec = part.split("\n", 2)
        assert label == "# JOB.yaml:"
        jobs[command.removeprefix("# ")] = yaml.safe_load(spec)
    return jobs


def run(
    script: str, *arguments: str, path: str = "/usr/bin:/bin", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script with the system's Python, as users without this project's packages do.

    They may have them in another: this one checks the flags.
    """
    environment = {"PATH": path, "PYTHON": sys.executable, **PLACE, **environment}
    return helpers.run(REPOSITORY / "gcp" / script, *arguments, env=environment, cwd="/")


def parse(*arguments: str, **environment: str) -> submit.Request:
    return submit.parse(arguments, {**PLACE, **environment})
