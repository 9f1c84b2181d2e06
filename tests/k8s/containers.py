"""What a pod's container runs: its arguments, environment and files, as Kubernetes makes them."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from tests.k8s.manifests import pods

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclasses.dataclass(frozen=True)
class Container:
    """A container whose mounts are folders here.

    Attributes:
      arguments: of the image's entry point, `python -m seed_rl.cluster`.
      environment: variables.
      probe: the command of the readiness probe, if it has one.
    """

    arguments: list[str]
    environment: dict[str, str]
    probe: list[str]


def container(
    documents: Sequence[dict[str, Any]],
    name: str,
    folder: pathlib.Path,
    index: int = 0,
    sidecar: bool = False,
) -> Container:
    """The container of a Job or Deployment, or its sidecar.

    Args:
      documents: the manifests, and the Secrets that they mention.
      name: of the Job or Deployment.
      folder: for what is mounted; containers with the same folder share volumes.
      index: of the pod.
      sidecar: whether the sidecar is meant.
    """
    (pod,) = [p for d in documents for of, p in pods(d).items() if of == name]
    (spec,) = pod["initContainers" if sidecar else "containers"]
    objects = {(d["kind"], d["metadata"]["name"]): d for d in documents}
    environment = {}
    for source in spec["envFrom"]:
        environment |= objects["ConfigMap", source["configMapRef"]["name"]]["data"]
    environment |= {variable["name"]: variable["value"] for variable in spec["env"]}
    if name != "tensorboard":
        environment["JOB_COMPLETION_INDEX"] = str(index)
    mounts = _mount(spec, pod, objects, folder / f"{name}-{index}", folder)

    paths = re.compile(rf"(?<![\w/])(?:{'|'.join(mounts)})(?!\w)")

    def here(text: str) -> str:
        return paths.sub(lambda match: str(mounts[match[0]]), text)

    return Container(
        arguments=[here(_expand(argument, environment)) for argument in spec["args"]],
        environment={variable: here(value) for variable, value in environment.items()},
        probe=spec.get("readinessProbe", {}).get("exec", {}).get("command", []),
    )


def _expand(text: str, environment: dict[str, str]) -> str:
    """References to unknown variables stay as they are, as in Kubernetes."""
    return _REFERENCE.sub(lambda match: environment.get(match[1], match[0]), text)


def _mount(
    spec: dict[str, Any],
    pod: dict[str, Any],
    objects: dict[tuple[str, str], dict[str, Any]],
    own: pathlib.Path,
    shared: pathlib.Path,
) -> dict[str, pathlib.Path]:
    """Makes the folders; returns them by the path in the container."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    places = {}
    for mount in spec["volumeMounts"]:
        volume = volumes[mount["name"]]
        claimed = "persistentVolumeClaim" in volume
        place = (shared if claimed else own) / mount["name"]
        place.mkdir(parents=True, exist_ok=True)
        files = {}
        if "configMap" in volume:
            data = objects["ConfigMap", volume["configMap"]["name"]]["data"]
            files = {name: text.encode() for name, text in data.items()}
        elif "secret" in volume:
            data = objects["Secret", volume["secret"]["secretName"]]["data"]
            files = {name: base64.b64decode(text) for name, text in data.items()}
        for name, content in files.items():
            (place / name).write_bytes(content)
            (place / name).chmod(0o600)
        places[mount["mountPath"]] = place
    return places
