"""Options of the learner's devices."""

from __future__ import annotations

import dataclasses

import numpy as np

from seed_rl.common.config.options import Checked, option
from seed_rl.common.errors import UserError


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
        "Training devices, all of one type, such as gpu:1,gpu:2; the batch is split among them, "
        "and steps are not compiled (--jit). auto: a GPU that does not infer, or the inference "
        "device if there is no other.",
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
        "CPU threads over which TensorFlow distributes the ops of a training step, and the work "
        "within each op; 0: one per core. 1 is faster with small networks, whose ops take "
        "microseconds, and where several runs share all cores.",
        minimum=0,
    )
    jit: str = option(
        "auto",
        "Compile training steps with XLA, for one training device; takes seconds at the start, "
        "up to a minute on a GPU. auto: where it pays, which is on a GPU, and on a CPU for PPO, "
        "PQN and other on-policy agents without convolutions and LSTM; never for steps with "
        "assertions or other ops that XLA changes.",
        choices=("auto", "true", "false"),
    )
    learner_addresses: str = option(
        "",
        "Comma-separated list of host:port at which each of several learners exchanges "
        "gradients; the same list for all of them. Default: one learner.",
    )
    learner_index: int = option(
        0, "Index in learner_addresses of this learner, or of this actor's learner.", minimum=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        given = f"--learner_addresses={self.learner_addresses}"
        for address in self.addresses:
            host, _, port = address.rpartition(":")
            if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
                raise UserError(f"{given}: '{address}' is not host:port.")
        if len(set(self.addresses)) < len(self.addresses):
            raise UserError(f"{given} names an address twice.")
        if self.learner_index >= self.learners:
            raise UserError(
                f"--learner_index={self.learner_index} needs more than {self.learner_index} "
                f"addresses in --learner_addresses, which has {len(self.addresses)}."
            )

    @property
    def addresses(self) -> list[str]:
        """`learner_addresses` as a list; empty: one learner."""
        return [part.strip() for part in self.learner_addresses.split(",") if part.strip()]

    @property
    def learners(self) -> int:
        """The number of learners."""
        return max(1, len(self.addresses))

    def check_learners(self, batch_size: int, insecure: bool) -> None:
        """Checks whether several learners may train together.

        Raises:
          UserError: they cannot share the batch, or --insecure is not set.
        """
        if self.learners > 1 and not insecure:
            raise UserError(
                f"{self.learners} learners exchange gradients at ports of every network "
                "interface, without token or encryption: anyone who can reach these can run code "
                "in the learners. If only machines that you trust can (a closed network, a "
                "firewall), add --insecure."
            )
        if batch_size % self.learners:
            raise UserError(
                f"--batch_size={batch_size} cannot be divided among {self.learners} learners; "
                "choose a multiple."
            )

    def own_seed(self, seed: int | None) -> int | None:
        """The seed of this learner and its actors; other learners use the same environment ids."""
        if seed is None or not self.learner_index:
            return seed
        return int(np.random.SeedSequence([seed, self.learner_index]).generate_state(1)[0])
