"""Options of the learner and of rewards, for any agent."""

from __future__ import annotations

import dataclasses

from seed_rl.common.config.options import Checked, option
from seed_rl.common.config.run_config import RunConfig
from seed_rl.common.errors import UserError

MOST = 10**6
"""Unrolls of a batch, and steps of an unroll. More would overflow sizes long before they fit."""


@dataclasses.dataclass(frozen=True)
class RewardConfig(Checked):
    """Rewards: discounting, scaling, clipping."""

    discounting: float = option(0.99, "Discount factor per agent step.", minimum=0.0, maximum=1.0)
    reward_scaling: float = option(1.0, "Factor applied to rewards before clipping.", minimum=0.0)
    max_abs_reward: float | None = option(
        None, "Rewards are clipped to this absolute value. 0: no clipping.", minimum=0.0
    )


@dataclasses.dataclass(frozen=True)
class LearnerConfig(Checked):
    """Learner: batches, checkpoints and logs."""

    total_environment_frames: int = option(
        1_000_000_000, "Environment frames after which the run ends.", minimum=1
    )
    batch_size: int = option(
        32,
        "Unrolls per training step, over all replicas.",
        minimum=1,
        maximum=MOST,
    )
    unroll_length: int = option(
        20,
        "Agent steps per unroll, not counting burn-in and the bootstrap step.",
        minimum=1,
        maximum=MOST,
    )
    unroll_queue_size: int = option(
        -1,
        "Complete unrolls that may be queued before inference blocks. Minimum and default: the "
        "number taken at once, which is a batch for training, or up to 16 for the replay of R2D2 "
        "and SAC.",
        minimum=-1,
    )
    inference_batch_size: int = option(
        -1, "Maximum number of environments per inference batch; -1: no limit.", minimum=-1
    )
    inference_timeout_ms: float = option(
        0.0,
        "Milliseconds that an idle inference device waits to fill its batch; 0: runs at once "
        "with the waiting requests.",
        minimum=0,
        maximum=1e9,
    )
    inference_threads: int = option(
        1,
        "CPU threads reserved for inference, so that it does not queue behind training; 0: shares "
        "the training threads.",
        minimum=0,
    )
    save_checkpoint_secs: float = option(600.0, "Seconds between checkpoints.", minimum=1)
    checkpoints_to_keep: int = option(3, "Number of recent checkpoints to keep.", minimum=1)
    keep_best: bool = option(
        False,
        "Whether to keep a checkpoint of the best agent in LOGDIR/best, judged by the mean return "
        "of the newest episodes: at least 20, equally many from each evaluation environment; "
        "without --num_eval_envs, at least 100, equally many from each training environment.",
    )
    stop_at_return: float | None = option(
        None,
        "Ends the run as finished once the mean return, as for keep_best, reaches this. "
        "Default: never.",
    )
    init_checkpoint: str | None = option(
        None, "Checkpoint that initializes the network weights of a new run."
    )
    log_period_secs: float = option(
        10.0, "Seconds between TensorBoard points; below 1, there is one a second.", minimum=0.1
    )
    video_every: int = option(
        0,
        "Environment frames between clips of the agent in TensorBoard (Images) and in "
        "LOGDIR/videos; needs the extra video. 0: none.",
        minimum=0,
    )
    wandb_project: str | None = option(
        None,
        "Weights & Biases project that mirrors the TensorBoard data; needs the package wandb. "
        "Default: none.",
    )
    save_model: bool = option(
        True, "Whether to export the policy as a SavedModel when the run ends."
    )

    def max_inference_batch(self, run: RunConfig) -> int:
        """Environments in the largest inference batch."""
        return self.inference_batch_size if self.inference_batch_size > 0 else run.num_envs

    def frames_per_step(self, run: RunConfig) -> int:
        """Environment frames per training step."""
        return self.batch_size * self.unroll_length * run.num_action_repeats

    def final_train_step(self, run: RunConfig) -> int:
        """Training steps to reach `total_environment_frames`, rounded up."""
        return -(-self.total_environment_frames // self.frames_per_step(run))


def check_replicas(batch_size: int, num_replicas: int) -> None:
    """Checks that training devices can share a batch.

    Raises:
      UserError: they cannot share it equally.
    """
    if batch_size % num_replicas:
        raise UserError(
            f"--batch_size={batch_size} cannot be divided among {num_replicas} training devices; "
            "choose a multiple."
        )


def check_training_envs(run: RunConfig) -> None:
    """Checks that some environments are trained on.

    Raises:
      UserError: none is left.
    """
    if run.num_eval_envs >= run.num_envs:
        raise UserError(
            f"--num_eval_envs={run.num_eval_envs} leaves no environment to train on; it must be "
            f"less than --num_envs={run.num_envs}."
        )


def validate(run: RunConfig, learner: LearnerConfig, num_replicas: int) -> None:
    """Checks options against each other.

    Raises:
      UserError: names the options to change.
    """
    check_training_envs(run)
    if run.env_batch_size > run.num_envs:
        raise UserError(
            f"--env_batch_size={run.env_batch_size} is more than --num_envs={run.num_envs}: a "
            "single actor would exceed the number of environments."
        )
    if 0 < learner.inference_batch_size < run.env_batch_size:
        raise UserError(
            f"--inference_batch_size={learner.inference_batch_size} is less than "
            f"--env_batch_size={run.env_batch_size}: an actor's environments would not fit in a "
            "batch. Raise the former or lower the latter."
        )
    check_replicas(learner.batch_size, num_replicas)
