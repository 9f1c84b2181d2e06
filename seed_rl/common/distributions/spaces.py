"""Action distributions for Gymnasium action spaces."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import tensorflow as tf
from gymnasium import spaces

from seed_rl.common import nest
from seed_rl.common.acting.env_adapters import as_gymnasium_space
from seed_rl.common.acting.spaces import nested
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.distributions import continuous, discrete, joint
from seed_rl.common.distributions.base import ParametricDistribution
from seed_rl.common.errors import UserError

_STD_FNS = {
    "safe_exp": continuous.safe_exp_std_fn,
    "softplus": continuous.softplus_std_fn,
}
_POSTPROCESSORS = {
    "Tanh": continuous.normal_tanh_distribution,
    "ClippedIdentity": continuous.normal_clipped_distribution,
}


def continuous_action_config(
    action_min_gaussian_std: float = 0.001,
    action_gaussian_std_fn: str = "softplus",
    action_std_for_zero_param: float = 1,
    action_postprocessor: str = "Tanh",
) -> ContinuousDistributionConfig:
    """Creates a `ContinuousDistributionConfig`; kept for code that calls or gin-configures it."""
    return ContinuousDistributionConfig(
        action_min_gaussian_std,
        action_gaussian_std_fn,
        action_std_for_zero_param,
        action_postprocessor,
    )


def get_parametric_distribution_for_action_space(
    action_space: gymnasium.Space, continuous_config: ContinuousDistributionConfig | None = None
) -> ParametricDistribution:
    """The family of distributions whose samples are actions of `action_space`.

    Supports `Discrete`, `MultiDiscrete`, `MultiBinary` and `Box` with bounds -1 and 1, and `Tuple`
    and `Dict` of these, whose actions are tuples and dicts.

    Args:
      action_space: action space of one environment; old gym's spaces are accepted.
      continuous_config: options for the parts that are boxes.

    Raises:
      UserError: there is no distribution for the space.
    """
    action_space = as_gymnasium_space(action_space)
    config = continuous_config or ContinuousDistributionConfig()
    if isinstance(action_space, (spaces.Tuple, spaces.Dict)):
        parts = nest.map_structure(
            lambda part: get_parametric_distribution_for_action_space(part, config),
            nested(action_space),
        )
        return joint.joint_distribution(parts, dtype_override=None)
    if isinstance(action_space, spaces.Discrete):
        return discrete.categorical_distribution(
            int(action_space.n), tf.as_dtype(action_space.dtype), int(action_space.start)
        )
    if isinstance(action_space, (spaces.MultiDiscrete, spaces.MultiBinary)):
        check_multi_discrete_space(action_space)
        return _multi_discrete(action_space)
    if isinstance(action_space, spaces.Box):
        check_box_space(action_space)
        std_fn = _STD_FNS[config.action_gaussian_std_fn](
            config.action_std_for_zero_param, config.action_min_gaussian_std
        )
        return _POSTPROCESSORS[config.action_postprocessor](action_space.shape[0], std_fn)
    raise UserError(
        f"No action distribution for {action_space}. Supported are Discrete, MultiDiscrete, "
        "MultiBinary, Box, and Tuple or Dict of these; wrap the environment to use one of them."
    )


def check_multi_discrete_space(space: Any) -> None:
    """Checks that the space's choices form a vector.

    Raises:
      UserError: they do not.
    """
    if len(space.shape) != 1:
        raise UserError(
            f"The action space {space} has {len(space.shape)} dimensions, but only 1 is supported; "
            "wrap the environment to flatten its actions."
        )


def check_box_space(space: Any) -> None:
    """Checks that the space is a vector of floats with bounds -1 and 1 for every component.

    Raises:
      UserError: it is not.
    """
    if np.dtype(space.dtype).kind != "f" or not np.isfinite([space.low, space.high]).all():
        raise UserError(
            f"Actions must be a Box of floats with bounds, not {space}. Declare the smallest and "
            "largest useful values; use MultiDiscrete for whole numbers."
        )
    check_multi_discrete_space(space)
    if not (np.allclose(space.low, -1.0) and np.allclose(space.high, 1.0)):
        raise UserError(
            f"Continuous actions must have bounds -1 and 1, but the action space is {space}. Wrap "
            "the environment in seed_rl.common.acting.env_wrappers.UniformBoundActionSpaceWrapper."
        )


def _multi_discrete(space: Any) -> ParametricDistribution:
    dtype = tf.as_dtype(space.dtype)
    sizes = [int(n) for n in getattr(space, "nvec", np.full(space.shape, 2))]
    starts = [int(start) for start in getattr(space, "start", np.zeros(space.shape))]
    if len(set(sizes)) == 1 and not any(starts):
        return discrete.multi_categorical_distribution(len(sizes), sizes[0], dtype)
    choices = [
        discrete.categorical_distribution(n, dtype, start, one_of_several=True)
        for n, start in zip(sizes, starts, strict=True)
    ]
    return joint.joint_distribution(choices, dtype_override=dtype)
