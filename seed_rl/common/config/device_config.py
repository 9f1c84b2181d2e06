"""Options of the learner's devices."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option


@dataclasses.dataclass(frozen=True)
class DeviceConfig(Checked):
    """Devices: training and inference."""

    inference_devices: str = option(
        "auto",
        "Inference devices, such as gpu:0 or gpu:0,gpu:1. auto: the first GPU, or the CPU if there "
        "is none; if training_devices is set, the GPUs that do not train.",
    )
    training_devices: str = option(
        "auto",
        "Training devices, all of one type, such as gpu:1,gpu:2; the batch is split among them. "
        "auto: the GPUs not used for inference, or the inference device if there is no other.",
    )
    num_training_tpus: int = option(
        1,
        "TPU cores used for training, over all hosts; the others run inference. If all train, all "
        "run inference too.",
        minimum=1,
    )
    tpu: str | None = option(
        None,
        "Name or gRPC address of the TPU, or 'local'. Default: the TPU of this machine, if it has "
        "one.",
    )
    training_threads: int = option(
        0,
        "CPU threads among which TensorFlow distributes the ops of a training step; 0: one per "
        "core. With small networks, whose ops take microseconds, 1 is faster.",
        minimum=0,
    )
