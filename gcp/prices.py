"""What a run's machines cost: a table of list prices, and the sum for jobs.

Prices change, and differ by region: https://cloud.google.com/vertex-ai/pricing has those of today.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gcp.job import Spec

AS_OF = "November 2026"
"""When this table was put together, from public lists of us-central1 of which some are older."""

SERVICE = 1.15
"""Vertex AI charges what Compute Engine does, and 15 % for the service."""

# Dollars per hour of Compute Engine. For each virtual CPU, with its memory (N-standard types):
_PER_CPU = {
    "c2-standard": 0.0522,
    "c2d-standard": 0.0454,
    "c3-standard": 0.0504,
    "c4-standard": 0.0494,
    "e2-standard": 0.0335,
    "n1-standard": 0.0475,
    "n2-standard": 0.0486,
    "n2d-standard": 0.0422,
    "t2d-standard": 0.0422,
}
# For types with their GPUs:
_WITH_GPUS = {
    **{f"a2-highgpu-{n}g": 3.673 * n for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": 55.74,
    **{f"a2-ultragpu-{n}g": 5.069 * n for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": 11.061 * n for n in (1, 2, 4, 8)},
    "a3-ultragpu-8g": 84.81,
    "g2-standard-4": 0.707,
    "g2-standard-8": 0.854,
    "g2-standard-12": 1.000,
    "g2-standard-16": 1.147,
    "g2-standard-24": 2.001,
    "g2-standard-32": 1.734,
    "g2-standard-48": 4.002,
    "g2-standard-96": 8.003,
}
# For each GPU attached to an n1 machine:
_GPU = {
    "NVIDIA_TESLA_T4": 0.35,
    "NVIDIA_TESLA_P4": 0.60,
    "NVIDIA_TESLA_P100": 1.46,
    "NVIDIA_TESLA_V100": 2.48,
}
# For each GB of disk, per month of 730 hours:
_DISK = {"pd-ssd": 0.17, "hyperdisk-balanced": 0.08}


def of_machine(machine: Mapping[str, object]) -> float | None:
    """Dollars per hour of a `machineSpec`, with the service; None if the table lacks it."""
    name = str(machine["machineType"])
    if name in _WITH_GPUS:
        return _WITH_GPUS[name] * SERVICE
    family, _, cpus = name.rpartition("-")
    if family not in _PER_CPU or not cpus.isdecimal():
        return None
    gpus = 0.0
    if "acceleratorType" in machine:
        each = _GPU.get(str(machine["acceleratorType"]))
        if each is None:
            return None
        gpus = each * int(str(machine["acceleratorCount"]))
    return (_PER_CPU[family] * int(cpus) + gpus) * SERVICE


def estimate(specs: list[Spec]) -> str:
    """What jobs cost, in lines for the console.

    Args:
      specs: of custom jobs, which run together, or of one tuning job.
    """
    hourly, limit, unknown, parts = 0.0, 0.0, set(), []
    for spec in specs:
        job = spec.get("trialJobSpec", spec)
        hours = int(job["scheduling"]["timeout"].removesuffix("s")) / 3600
        for name, count, each in _rented(job):
            if each is None:
                unknown.add(name)
                continue
            at_once = count * spec.get("parallelTrialCount", 1)
            hourly += at_once * each
            limit += count * spec.get("maxTrialCount", 1) * each * hours
            parts.append(f"{at_once} x {name} ${at_once * each:,.2f}")
    spot = any(s.get("trialJobSpec", s)["scheduling"]["strategy"] == "SPOT" for s in specs)
    lines = [f"Price: about ${hourly:,.2f} an hour, ${limit:,.0f} until the limit (--days)."]
    lines += [f"With disks: {', '.join(parts)}."] if parts else []
    if unknown:
        lines.append(f"Not counted: {', '.join(sorted(unknown))}, which gcp/prices.py lacks.")
    if spot:
        lines.append("Spot machines cost less than that, by an amount that changes daily.")
    lines.append(f"List prices of {AS_OF} in us-central1; they change, and differ by region:")
    return "\n".join([*lines, "https://cloud.google.com/vertex-ai/pricing"])


def _rented(job: Spec) -> Iterator[tuple[str, int, float | None]]:
    """Machines with their disks: name, number, dollars per hour of each."""
    for pool in job["workerPoolSpecs"]:
        machine, disk = pool["machineSpec"], pool["diskSpec"]
        name = machine["machineType"]
        if name not in _WITH_GPUS and "acceleratorType" in machine:
            name += f" with {machine['acceleratorCount']} {machine['acceleratorType']}"
        each = of_machine(machine)
        if each is not None:
            each += _DISK[disk["bootDiskType"]] * disk["bootDiskSizeGb"] / 730 * SERVICE
        yield name, pool["replicaCount"], each
