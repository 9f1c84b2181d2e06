"""Machine shapes: those that exist, and GPUs that are rented and used."""

from __future__ import annotations

import pytest

from gcp import machines
from seed_rl.common.errors import UserError


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
        (("a2-highgpu-3g",), "not a known machine type"),
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
        (["--inference_devices=gpu:1", "--training_devices=auto"], 4, "uses only gpu:0, gpu:1:"),
        (["--inference_devices=cpu:0"], 2, "uses only gpu:0:"),
        (["--inference_devices=gpu:0,GPU:1,gpu:2", "--training_devices=AUTO"], 4, None),
        (["--training_devices=gpu:1,gpu:2"], 4, None),
        ([], 4, "uses only gpu:0, gpu:1:"),
        ([], 2, None),
    ],
)
def test_gpus_used_are_gpus_rented(flags: list[str], rented: int, message: str | None) -> None:
    if message is None:
        machines.check_devices(flags, rented)
        return
    with pytest.raises(UserError, match=message):
        machines.check_devices(flags, rented)


def test_each_of_several_learners_trains_on_all_of_its_gpus() -> None:
    machines.check_devices([], 4, learners=2)


def test_families_without_persistent_disk_start_from_hyperdisk() -> None:
    only = ("n4-standard-8", "c4-highcpu-8", "c4d-standard-8", "a3-ultragpu-8g", "a4-highgpu-8g")
    both = ("n2-standard-8", "c3-standard-8", "a3-highgpu-8g", "a2-highgpu-1g", "e2-standard-4")
    assert {machines.disk_type(name) for name in only} == {"hyperdisk-balanced"}
    assert {machines.disk_type(name) for name in both} == {"pd-ssd"}
