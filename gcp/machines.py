"""Machine types of Google Cloud and the accelerators that come with them.

Sources: "GPU machine types" of Compute Engine's documentation, `AcceleratorType` of the Vertex AI
API v1.
"""

from __future__ import annotations

import dataclasses
import re

from seed_rl.common.errors import UserError

# Types that include their accelerators.
_INCLUDED: dict[str, tuple[str, int]] = {
    **{f"a2-highgpu-{n}g": ("NVIDIA_TESLA_A100", n) for n in (1, 2, 4, 8)},
    "a2-megagpu-16g": ("NVIDIA_TESLA_A100", 16),
    **{f"a2-ultragpu-{n}g": ("NVIDIA_A100_80GB", n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": ("NVIDIA_H100_80GB", n) for n in (1, 2, 4, 8)},
    "a3-megagpu-8g": ("NVIDIA_H100_MEGA_80GB", 8),
    "a3-ultragpu-8g": ("NVIDIA_H200_141GB", 8),
    "a4-highgpu-8g": ("NVIDIA_B200", 8),
    **{f"g2-standard-{n}": ("NVIDIA_L4", 1) for n in (4, 8, 12, 16, 32)},
    **{f"g2-standard-{n}": ("NVIDIA_L4", k) for n, k in ((24, 2), (48, 4), (96, 8))},
}
# Accelerators that are attached to an n1 machine, and how many one can have.
_ATTACHED = {
    "NVIDIA_TESLA_T4": (1, 2, 4),
    "NVIDIA_TESLA_P4": (1, 2, 4),
    "NVIDIA_TESLA_P100": (1, 2, 4),
    "NVIDIA_TESLA_V100": (1, 2, 4, 8),
}
# Families without Persistent Disk, by "Machine series support" of Hyperdisk's documentation.
_ONLY_HYPERDISK = re.compile(r"(a3-ultragpu|a4x?|c4[ad]?|g4|h4d|m4|n4[ad]?|x4)-")
_WITH_ACCELERATORS = re.compile(r"(a\d+x?|g\d+)-")


@dataclasses.dataclass(frozen=True)
class Shape:
    """A machine to rent.

    Attributes:
      machine_type: its name.
      accelerator: of the API's `AcceleratorType`; None: it has none.
      accelerators: their number.
    """

    machine_type: str
    accelerator: str | None = None
    accelerators: int = 0


def shape(
    machine_type: str, accelerator: str | None = None, accelerators: int | None = None
) -> Shape:
    """The machine with exactly the accelerators that the type includes or that are asked for.

    Args:
      machine_type: such as n1-standard-16 or a2-highgpu-2g.
      accelerator: needed where the type does not imply it (n1), else the same or None.
      accelerators: their number, also; 1 by default where one is named.

    Raises:
      UserError: such a machine does not exist.
    """
    if included := _INCLUDED.get(machine_type):
        if accelerator not in (None, included[0]) or accelerators not in (None, included[1]):
            asked = f"{accelerators or ''} {accelerator or 'accelerators'}".strip()
            raise UserError(
                f"{machine_type} comes with {included[1]} {included[0]}, not with {asked}. Leave "
                "--learner_accelerator and --learner_accelerators out, or choose another "
                "--learner_machine."
            )
        return Shape(machine_type, *included)
    if accelerator is None:
        if accelerators:
            raise UserError(
                "--learner_accelerators needs to know which: --learner_accelerator="
                f"{', '.join(_ATTACHED)}."
            )
        if _WITH_ACCELERATORS.match(machine_type):
            raise UserError(
                f"{machine_type} is not a known machine type. With accelerators: "
                f"{', '.join(sorted(_INCLUDED))}. For a newer one, give --learner_accelerator and "
                "--learner_accelerators, too."
            )
        return Shape(machine_type)
    count = 1 if accelerators is None else accelerators
    if _WITH_ACCELERATORS.match(machine_type):
        return Shape(machine_type, accelerator, count)
    if not machine_type.startswith("n1-"):
        raise UserError(
            f"{machine_type} takes no accelerators: attach {accelerator} to an n1 machine, such as "
            "--learner_machine=n1-standard-16, or choose a machine that includes some "
            "(a2, a3, a4, g2)."
        )
    if accelerator not in _ATTACHED:
        raise UserError(
            f"{accelerator} cannot be attached to {machine_type}. Those that can: "
            f"{', '.join(_ATTACHED)}."
        )
    if count not in _ATTACHED[accelerator]:
        raise UserError(
            f"A machine has {', '.join(map(str, _ATTACHED[accelerator]))} {accelerator}, not "
            f"{count}: change --learner_accelerators."
        )
    return Shape(machine_type, accelerator, count)


def cores(machine_type: str) -> int:
    """Virtual CPUs of a machine type, by its name.

    Raises:
      UserError: the name does not contain it.
    """
    match = re.fullmatch(r"[a-z0-9]+-[a-z]+-(\d+)", machine_type)
    if not match:
        raise UserError(
            f"{machine_type} does not include the number of CPUs: give --actors_per_machine."
        )
    return int(match[1])


def disk_type(machine_type: str) -> str:
    """The kind of disk that a machine starts from."""
    return "hyperdisk-balanced" if _ONLY_HYPERDISK.match(machine_type) else "pd-ssd"


def check_devices(flags: list[str], rented: int, learners: int = 1) -> None:
    """Compares the GPUs that a learner uses with those that are rented.

    Args:
      flags: of the program.
      rented: number of GPUs.
      learners: of the run; each of several trains on all of its GPUs.

    Raises:
      UserError: it would use GPUs that do not exist, or leave some idle.
    """
    pattern = r"--(inference_devices|training_devices|tpu)=(\S*)"
    given = dict(re.findall(pattern, "\n".join(flags).lower()))
    if given.get("tpu"):
        raise UserError("--tpu: these jobs rent GPUs only. docs/deployment.md has TPUs.")
    named = {int(n) for value in given.values() for n in re.findall(r"gpu:(\d+)", value)}
    if named and max(named) >= rented:
        raise UserError(
            f"The learner would use gpu:{max(named)}, but "
            + (f"{rented} GPUs are rented (gpu:0 to gpu:{rented - 1})" if rented else "rents none")
            + ": change --learner_accelerators or the --inference_devices and --training_devices."
        )
    infers, trains = (given.get(f"{k}_devices", "auto") for k in ("inference", "training"))
    if learners > 1 or (infers == "auto" and trains != "auto"):
        return  # All are used.
    if infers == "auto":
        named.add(0)
    if trains == "auto":
        named.add(min(set(range(len(named) + 1)) - named))
    if len(named) < rented:
        raise UserError(
            f"{rented} GPUs are rented, but the learner uses only "
            f"{', '.join(f'gpu:{n}' for n in sorted(named)) or 'the CPU'}: rent fewer, or name the "
            "others in --inference_devices or --training_devices."
        )
