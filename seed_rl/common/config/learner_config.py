"""Options of the learner, whatever the agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import option
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError


@dataclasses.dataclass(frozen=True)
class LearnerConfig:
    """Learner: batches, checkpoints and logs."""

    total_environment_frames: int = option(
        1_000_000_000, "Environment frames to train on before the run ends.", minimum=1
    )
    batch_size: int = option(32, "Unrolls per training step, over all replicas.", minimum=1)
    unroll_length: int = option(
        20, "Agent steps per unroll, besides burn-in and bootstrap step.", minimum=1
    )
    unroll_queue_size: int = option(
        -1,
        "Complete unrolls that may wait for training before inference waits; one batch at least.",
        minimum=-1,
    )
    inference_batch_size: int = option(
        -1, "Most environments per inference; -1: all that are waiting.", minimum=-1
    )
    inference_timeout_ms: float = option(
        0.0,
        "How long a free inference device waits for more environments than are there; 0 takes "
        "what is there.",
        minimum=0,
    )
    inference_threads: int = option(
        1,
        "CPU threads of inference alone, so that it does not wait behind training; 0 shares "
        "those of training.",
        minimum=0,
    )
    save_checkpoint_secs: float = option(600.0, "Seconds between checkpoints.", minimum=1)
    checkpoints_to_keep: int = option(3, "Checkpoints kept, counted from the newest.", minimum=1)
    init_checkpoint: str | None = option(
        None, "Checkpoint whose network weights a new run starts from."
    )
    log_period_secs: float = option(10.0, "Seconds between points in TensorBoard.", minimum=0.1)
    wandb_project: str | None = option(
        None,
        "Project of Weights & Biases that gets all that TensorBoard gets, if wandb is installed. "
        "Not given: none.",
    )
    save_model: bool = option(True, "Export the policy as a SavedModel when the run ends.")

    def queue_capacity(self) -> int:
        """Complete unrolls that may wait."""
        # With less, inference and training would wait for each other.
        return max(self.batch_size, self.unroll_queue_size)

    def max_inference_batch(self, run: RunConfig) -> int:
        """Environments in the largest batch of inference."""
        return self.inference_batch_size if self.inference_batch_size > 0 else run.num_envs

    def frames_per_step(self, run: RunConfig) -> int:
        """Environment frames that one training step uses."""
        return self.batch_size * self.unroll_length * run.num_action_repeats

    def final_train_step(self, run: RunConfig) -> int:
        """Number of training steps that make `total_environment_frames`, rounded up."""
        return -(-self.total_environment_frames // self.frames_per_step(run))


def validate(run: RunConfig, learner: LearnerConfig, num_replicas: int) -> None:
    """Checks what single options cannot tell.

    Raises:
      UserError: naming the options to change.
    """
    if run.num_eval_envs >= run.num_envs:
        raise UserError(
            f"--num_eval_envs={run.num_eval_envs} leaves no environment to train on; it must be "
            f"smaller than --num_envs={run.num_envs}."
        )
    if run.env_batch_size > run.num_envs:
        raise UserError(
            f"--env_batch_size={run.env_batch_size} is more than --num_envs={run.num_envs}: one "
            "actor alone would have too many environments."
        )
    if 0 < learner.inference_batch_size < run.env_batch_size:
        raise UserError(
            f"--inference_batch_size={learner.inference_batch_size} is less than "
            f"--env_batch_size={run.env_batch_size}: no actor's environments would fit into a "
            "batch. Raise the former or lower the latter."
        )
    if learner.batch_size % num_replicas:
        raise UserError(
            f"--batch_size={learner.batch_size} cannot be divided among {num_replicas} training "
            "devices; choose a multiple."
        )
