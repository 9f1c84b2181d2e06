"""Options of the learner's devices (no TensorFlow here)."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option


@dataclasses.dataclass(frozen=True)
class DeviceConfig:
    """Devices: what trains and what infers."""

    inference_devices: str = option(
        "auto",
        "Devices that run the policy for the actors, such as gpu:0 or gpu:0,gpu:1. auto: the "
        "first GPU, or the CPU where there is none; with training_devices given, the GPUs that do "
        "not train.",
    )
    training_devices: str = option(
        "auto",
        "Devices that train, all of one kind, such as gpu:1,gpu:2; the batch is split among "
        "them. auto: the GPUs that do not infer, or the same device where there is but one.",
    )
    num_training_tpus: int = option(
        1,
        "TPU cores that train, over all hosts; the others infer. If all train, all infer too.",
        minimum=1,
    )
    tpu: str | None = option(
        None,
        "Name or gRPC address of the TPU, or 'local'. Not given: the TPU of this machine, if it "
        "has one.",
    )
