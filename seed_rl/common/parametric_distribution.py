"""Facade: names of the original, from `distributions`."""

from seed_rl.common.distributions.base import Actions, Distribution, ParametricDistribution
from seed_rl.common.distributions.continuous import (
    ClippedNormal,
    Deterministic,
    Normal,
    TanhNormal,
    deterministic_tanh_distribution,
    normal_clipped_distribution,
    normal_tanh_distribution,
    safe_exp,
    safe_exp_std_fn,
    softplus_default_std_fn,
    softplus_std_fn,
)
from seed_rl.common.distributions.discrete import (
    Categorical,
    MultiCategorical,
    categorical_distribution,
    multi_categorical_distribution,
)
from seed_rl.common.distributions.joint import Joint, joint_distribution
from seed_rl.common.distributions.spaces import (
    ContinuousDistributionConfig,
    check_box_space,
    check_multi_discrete_space,
    continuous_action_config,
    get_parametric_distribution_for_action_space,
)

__all__ = [
    "Actions",
    "Categorical",
    "ClippedNormal",
    "ContinuousDistributionConfig",
    "Deterministic",
    "Distribution",
    "Joint",
    "MultiCategorical",
    "Normal",
    "ParametricDistribution",
    "TanhNormal",
    "categorical_distribution",
    "check_box_space",
    "check_multi_discrete_space",
    "continuous_action_config",
    "deterministic_tanh_distribution",
    "get_parametric_distribution_for_action_space",
    "joint_distribution",
    "multi_categorical_distribution",
    "normal_clipped_distribution",
    "normal_tanh_distribution",
    "safe_exp",
    "safe_exp_std_fn",
    "softplus_default_std_fn",
    "softplus_std_fn",
]
