"""Defaults of the original's learners, for programs that take their flags from `import learner`.

Programs written for the original rely on its defaults: they pass only what differs. So importing a
learner, or `learner_flags`, gives its flags these defaults. The programs of this package have
presets of their own instead, and never import these modules.

The values are facts from the original's documentation and papers. docs/migrating.md lists them,
and says which are uncertain.
"""

from __future__ import annotations

from typing import Any

from seed_rl.common.config.presets import Preset

_NAME = "original program"

# Options of `RunConfig` have the same defaults, unless an environment sets them.
_LEARNER: dict[str, Any] = dict(
    total_environment_frames=1_000_000_000,
    batch_size=2,
    unroll_length=100,
    inference_batch_size=-1,
    save_checkpoint_secs=1800.0,
)

VTRACE = Preset(
    _NAME,
    dict(
        _LEARNER,
        discounting=0.99,
        lambda_=1.0,
        max_abs_reward=None,
        baseline_cost=0.5,
        entropy_cost=0.00025,
        target_entropy=None,
        entropy_cost_adjustment_speed=10.0,
        kl_cost=0.0,
    ),
)

R2D2 = Preset(
    _NAME,
    dict(
        _LEARNER,
        discounting=0.997,
        n_steps=5,
        burn_in=40,
        update_target_every_n_step=2500,
        value_function_rescaling_epsilon=1e-3,
        max_abs_reward=None,
        eval_epsilon=1e-3,
        unroll_queue_size=100,
        replay_buffer_size=100,
        replay_buffer_min_size=10,
        replay_ratio=1.5,
        # Each batch waited for its share of new unrolls: neither side ran ahead of the other.
        replay_ratio_slack=1,
        priority_exponent=0.9,
        importance_sampling_exponent=0.6,
        learning_rate=1e-4,
        learning_rate_decay=False,
        optimizer_epsilon=1e-3,
        clip_norm=40.0,
    ),
)

SAC = Preset(
    _NAME,
    dict(
        _LEARNER,
        batch_size=256,
        unroll_length=1,
        discounting=0.99,
        bootstrap_net="v",
        action_gaussian_std_fn="softplus",
        target_update_tau=0.005,
        update_target_every_n_step=1,
        max_abs_reward=None,
        replay_ratio=256.0,
    ),
)
"""To be applied after the preset of our SAC, which has the rest."""

ON_POLICY = Preset(_NAME, {**_LEARNER, "batch_size": 0})
