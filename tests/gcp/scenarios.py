"""Calls of gcp/submit.py and of the scenario scripts."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import yaml

from gcp import submit
from tests import helpers

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
EXPECTED = pathlib.Path(__file__).with_name("jobs.yaml")
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
    **{path.stem: (path.name,) for path in sorted((REPOSITORY / "gcp").glob("*_*.sh"))},
    "train_atari_spot": ("train_atari.sh", "--spot=all", "--game=Breakout"),
    "train_football_spot_actors": ("train_football_scoring.sh", "--spot=actors", NETWORK),
    "sweep_spot": ("sweep_atari.sh", "--spot=all", "--trials=50"),
}

_LEVEL = "rooms_watermaze"
LIKE = {
    **{
        name: (f"train_dmlab_{_LEVEL}", {_LEVEL: name.removeprefix("train_dmlab_")})
        for name in SCENARIOS
        if name.startswith("train_dmlab_") and not name.endswith(_LEVEL)
    },
    "train_football_checkpoints": (
        "train_football_scoring",
        {"-scoring": "-checkpoints", "experiment=scoring": "experiment=scoring,checkpoints"},
    ),
    "train_atari_spot": ("train_atari", {"Pong": "Breakout", "STANDARD": "SPOT"}),
    "sweep_spot": (
        "sweep_atari",
        {"-trial-count=20": "-trial-count=50", 'Count": 20': 'Count": 50', "STANDARD": "SPOT"},
    ),
}
"""Scenarios that are as another, but for some words."""


def _reviewed() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load(EXPECTED.read_text("utf-8"))
    for name, (other, words) in LIKE.items():
        text = json.dumps(found[other])
        for word, replaced in words.items():
            assert word in text
            text = text.replace(word, replaced)
        found[name] = json.loads(text)
    return found


REVIEWED = _reviewed()
"""By scenario: its jobs by the calls of gcloud that submit them."""


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
