"""Names of options in other libraries, and what these options are called here.

Those that mean the same are accepted. Others differ in a unit or a definition, so the message about
an unknown flag names ours and the difference. A program's own flag of such a name is left alone.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

_FRAMES = "which counts environment frames: steps times --num_action_repeats"
_UNROLL = "steps of each environment in one unroll"
_ENVS = "the number of actor processes, and of environments in each"
_UNROLLS = "in unrolls, each of --unroll_length steps"
_STEPS = "in training steps"
_LOGDIR = "the directory of the run, with its checkpoints and TensorBoard's files"
_DEVICES = "and --inference_devices=...: cpu, for example; by default a GPU, if there is one"
_VALUE_COST = (
    "of the squared error (PPO) or of half of it (V-trace); libraries differ by this factor of 2"
)

SAME = {
    "frames": "total_environment_frames",
    "net_arch": "mlp_sizes",
    "gamma": "discounting",
    "lr": "learning_rate",
    "max_grad_norm": "clip_norm",
    "ent_coef": "entropy_cost",
    "entropy_coef": "entropy_cost",
    "clip_coef": "clip_range",
    "clip_param": "clip_range",
    "ppo_clip_ratio": "clip_range",
    "clip_range_vf": "value_clip_range",
    "normalize_advantage": "normalize_advantages",
    "norm_adv": "normalize_advantages",
    "normalize_input": "normalize_observations",
    "reward_scale": "reward_scaling",
    "reward_clip": "max_abs_reward",
    "lam": "gae_lambda",
    "anneal_lr": "learning_rate_decay",
    "num_minibatches": "batches_per_step",
    "q_lambda": "trace_lambda",
    "start_e": "initial_epsilon",
    "end_e": "final_epsilon",
    "exploration_initial_eps": "initial_epsilon",
    "exploration_final_eps": "final_epsilon",
    "wandb_project_name": "wandb_project",
}
"""Our names of options by foreign ones that mean the same."""

DIFFERENT: dict[str, tuple[str, str]] = {
    "total_timesteps": ("total_environment_frames", _FRAMES),
    "num_timesteps": ("total_environment_frames", _FRAMES),
    "train_for_env_steps": ("total_environment_frames", _FRAMES),
    "n_steps": ("unroll_length", _UNROLL),
    "num_steps": ("unroll_length", _UNROLL),
    "rollout": ("unroll_length", _UNROLL),
    "rollout_fragment_length": ("unroll_length", _UNROLL),
    "num_envs": ("num_envs", _ENVS),
    "n_envs": ("num_envs", _ENVS),
    "num_workers": ("num_envs", _ENVS),
    "num_env_runners": ("num_envs", _ENVS),
    "frame_skip": ("num_action_repeats", "environment frames per action"),
    "frameskip": ("num_action_repeats", "environment frames per action"),
    "env_frameskip": ("num_action_repeats", "environment frames per action"),
    "frame_stack": ("stack_size", "frames that the learner stacks"),
    "env_framestack": ("stack_size", "frames that the learner stacks"),
    "env_id": ("env_name", "an id of Gymnasium or module:Class"),
    "buffer_size": ("replay_buffer_size", _UNROLLS),
    "learning_starts": ("replay_buffer_min_size", _UNROLLS),
    "target_update_interval": ("update_target_every_n_step", _STEPS),
    "target_network_frequency": ("update_target_every_n_step", _STEPS),
    "alpha": ("entropy_cost", "the initial temperature of SAC"),
    "train_freq": ("replay_ratio", "unrolls trained on per new one"),
    "gradient_steps": ("replay_ratio", "unrolls trained on per new one"),
    "policy_lr": ("learning_rate", "of all networks"),
    "q_lr": ("learning_rate", "of all networks"),
    "log_std_init": ("action_std_for_zero_param", "the deviation, not its logarithm"),
    "n_epochs": ("epochs_per_step", "passes over the transitions of a training step"),
    "update_epochs": ("epochs_per_step", "passes over the transitions of a training step"),
    "minibatch_size": ("batch_size_transitions", "transitions of a minibatch"),
    "vf_coef": ("baseline_cost", _VALUE_COST),
    "value_loss_coeff": ("baseline_cost", _VALUE_COST),
    "target_kl": (
        "epochs_per_step",
        "where fewer passes bound the change of the policy; none ends early at a divergence",
    ),
    "gae_lambda": ("lambda_", "of the value targets"),
    "track": ("wandb_project", "the project in which Weights & Biases tracks the run"),
    "exp_name": ("logdir", _LOGDIR),
    "resume": ("logdir", "the directory of the run to continue"),
    "tensorboard_log": ("logdir", _LOGDIR),
    "capture_video": ("video_every", "environment frames between clips of the agent"),
    "save_freq": ("save_checkpoint_secs", "in seconds"),
    "eval_freq": ("num_eval_envs", "environments that play evaluation episodes during training"),
    "device": ("training_devices", _DEVICES),
    "cuda": ("training_devices", _DEVICES),
    "policy_kwargs": ("mlp_sizes", "the hidden layers; --help lists the network's other options"),
    "autotune": ("entropy_cost_adjustment_speed", "which is 0 for a fixed --entropy_cost"),
    "tau": ("target_update_tau", "after every --update_target_every_n_step training steps"),
}
"""By foreign names: the flag, and how it differs."""


def ours(name: str, known: Container[str]) -> str:
    """Our name of an option, if it is in `SAME` and not a flag of the program itself.

    Args:
      name: as given.
      known: the program's flags.
    """
    same = SAME.get(name, name)
    return same if same in known and name not in known else name


def translated(arguments: Sequence[str], known: Container[str]) -> list[str]:
    """A command line, or the lines of a flag file, with our names for those in `SAME`.

    Args:
      arguments: flags, perhaps with their values behind them.
      known: the program's flags.
    """

    def spelled(argument: str) -> str:
        match = re.match("--?([a-z_]+)(?==|$)", argument)
        if match is None or (name := ours(match[1], known)) == match[1]:
            return argument
        return f"--{name}{argument[match.end() :]}"

    return [spelled(argument) for argument in arguments]


def instead(name: str, known: Container[str]) -> str | None:
    """What to write instead of a flag that the program does not have; None if we cannot say.

    Args:
      name: of the unknown flag, possibly with dashes, as CleanRL writes it.
      known: the program's flags.
    """
    plain = name.replace("-", "_")
    flag, difference = DIFFERENT.get(plain, ("", ""))
    if flag and flag in known:
        # The launcher multiplies its two arguments.
        flag = "ACTORS ENVS_PER_ACTOR" if flag == "num_envs" else f"--{flag}=..."
        return f"{flag}, {difference}"
    same = ours(plain, known)
    return f"--{same}=..." if same in known else None
