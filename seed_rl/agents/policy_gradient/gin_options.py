"""Common settings as options, each of which sets some gin parameters.

A binding of the gin config wins over an option's default. If the user has set the option to another
value, that is an error.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import gin
from absl import logging
from gin import config as gin_internals

from seed_rl.agents.policy_gradient import gin_config
from seed_rl.agents.policy_gradient.config import LossConfig
from seed_rl.common.config import flag_origins
from seed_rl.common.config.distribution_config import ContinuousDistributionConfig
from seed_rl.common.config.flag_definitions import shown
from seed_rl.common.config.network_config import (
    ConvNetworkConfig,
    MLPNetworkConfig,
    ObservationConfig,
)
from seed_rl.common.config.optimizer_config import OptimizerConfig
from seed_rl.common.config.options import flag_dictionary, from_values
from seed_rl.common.errors import UserError

_NETWORK_CONFIGS = (
    ContinuousDistributionConfig,
    ObservationConfig,
    ConvNetworkConfig,
    MLPNetworkConfig,
)
CONFIGS = (LossConfig, OptimizerConfig, *_NETWORK_CONFIGS)
"""The dataclasses whose options are settings of a gin config."""

_LOSS, _NETWORK = "GeneralizedOnPolicyLoss", "ContinuousControlAgent"
_OPTIMIZER = frozenset(field.name for field in dataclasses.fields(OptimizerConfig))
_DISTRIBUTION = [field.name for field in dataclasses.fields(ContinuousDistributionConfig)]
_ACTIVATIONS = {"tanh": "@tf.tanh", "relu": "@tf.nn.relu"}
_PARAMETERS = {
    "discounting": (f"{_LOSS}.discount_factor",),
    "gae_lambda": ("GAE.lambda_", "VTrace.lambda_"),
    "clip_range": ("ppo.epsilon",),
    "normalize_advantages": ("ppo.normalize_advantages",),
    "entropy_cost": ("KLPolicyRegularizer.entropy",),
    "value_clip_range": (f"{_LOSS}.value_ppo_style_clip_eps",),
    **{name: (f"{_LOSS}.{name}",) for name in ("baseline_cost", "max_abs_reward")},
    "reward_scaling": (f"{_LOSS}.reward_scaling",),
    **{name: (f"OptimizerConfig.{name}",) for name in sorted(_OPTIMIZER)},
    **{name: (f"ConvNetworkConfig.{name}",) for name in ("torso", "stack_size", "compute_dtype")},
    **{name: (f"continuous_action_config.{name}",) for name in _DISTRIBUTION},
    "mlp_sizes": ("MLPNetworkConfig.mlp_sizes",),
    "mlp_activation": ("MLPNetworkConfig.mlp_activation",),
    "lstm_sizes": ("ConvNetworkConfig.lstm_sizes", "MLPNetworkConfig.lstm_sizes"),
    "normalize_observations": ("ObservationConfig.normalize_observations",),
}
_NORMALIZER = f"{_NETWORK}.observation_normalizer"
_NORMALIZED = {
    _NORMALIZER: "@InputNormalization()",
    "InputNormalization.mean_std_tracker": "@observations/AverageMeanStd()",
    f"{_NETWORK}.input_clipping": "10.0",
}
"""What --normalize_observations sets for networks of vectors, in gin's syntax."""

_OF_NETWORK = frozenset(field.name for cls in _NETWORK_CONFIGS for field in dataclasses.fields(cls))
_SCALARS = (bool, int, float, str, type(None))


class Settled(NamedTuple):
    """The result of `settle`.

    Attributes:
      bound: by option, the parameters that it has set, or that the config already had at the
        value that the user gave.
      instead: by option of loss and optimizer, the gin config's value where it differs.
      chosen: options that the user has given.
    """

    bound: Mapping[str, Collection[str]]
    instead: Mapping[str, Any]
    chosen: Collection[str]


NOTHING = Settled({}, {}, ())


def of_flags() -> dict[str, Any]:
    """The settings among the program's flags, by name."""
    return {name: value for name, value in flag_dictionary().items() if name in _PARAMETERS}


def of_preset(values: Mapping[str, Any]) -> dict[str, Any]:
    """All settings by name, for programs without flags: a preset's values, or the defaults."""
    configs: list[Any] = [from_values(cls, values) for cls in CONFIGS]
    return {
        field.name: getattr(config, field.name)
        for config in configs
        for field in dataclasses.fields(config)
    }


def typed() -> frozenset[str]:
    """The settings on this command line, or in its flag files."""
    given = (flag_origins.COMMAND_LINE, "flag file")
    return frozenset(name for name in of_flags() if flag_origins.origin(name).startswith(given))


def settle(options: Mapping[str, Any], chosen: Collection[str] = ()) -> Settled:
    """Sets the parameters that the current gin config leaves open.

    Args:
      options: values by name.
      chosen: those that the user has given.

    Raises:
      UserError: the config has another value for one of `chosen`.
    """
    bound: dict[str, set[str]] = {}
    instead: dict[str, Any] = {}
    own_optimizer = gin_config.bindings("create_optimizer").get("optimizer_fn") is not None
    with gin.unlock_config():
        for name, value in options.items():
            if own_optimizer and name in _OPTIMIZER - {*chosen, "clip_norm"}:
                continue
            for parameter, wanted in _open(parameters(name, value)).items():
                part, _, argument = parameter.rpartition(".")
                known = gin_config.bindings(part)
                if argument not in known:
                    gin.bind_parameter(parameter, wanted)
                    bound.setdefault(name, set()).add(parameter)
                elif _agree(parameter, known[argument], wanted):
                    if name in chosen:
                        bound.setdefault(name, set()).add(parameter)
                else:
                    _tell(name, value, parameter, known[argument], name in chosen)
                    # Those of the network are compared when a run continues, in terms of gin's
                    # parameters.
                    if name not in _OF_NETWORK and isinstance(known[argument], _SCALARS):
                        instead[name] = known[argument]
        loss = gin_config.bindings(_LOSS)
        absent = "regularizer" not in loss
        if options.get("entropy_cost") and (
            absent or (loss["regularizer"] is None and "entropy_cost" in chosen)
        ):
            regularizer = gin_internals.parse_value("@KLPolicyRegularizer()")
            gin.bind_parameter(f"{_LOSS}.regularizer", regularizer)
    return Settled(bound, instead, chosen)


def parameters(name: str, value: Any) -> dict[str, Any]:
    """The gin parameters that an option sets, with their values.

    Raises:
      UserError: the network has no such layers.
    """
    value = tuple(value) if isinstance(value, list) else value
    found = dict.fromkeys(_PARAMETERS[name], value)
    if name == "mlp_activation":
        found[f"{_NETWORK}.activation"] = gin_internals.parse_value(_ACTIVATIONS[value])
    elif name == "mlp_sizes":
        number, units = _equal(name, value)
        for role in ("policy", "value"):
            found |= {
                f"{_NETWORK}.num_layers_{role}": number,
                f"{_NETWORK}.num_units_{role}": units,
            }
    elif name == "normalize_observations":
        # In a scope, because value targets have an AverageMeanStd of their own.
        texts = _NORMALIZED if value else {_NORMALIZER: "None"}
        found |= {parameter: gin_internals.parse_value(text) for parameter, text in texts.items()}
    elif name == "lstm_sizes":
        number, units = _equal(name, tuple(filter(None, value)))
        found[f"{_NETWORK}.num_layers_rnn"] = number
        if number:
            found[f"{_NETWORK}.num_units_rnn"] = units
    return found


def _open(wanted: dict[str, Any]) -> dict[str, Any]:
    """`wanted` without details of the observation normalizer, if the gin config chooses that."""
    if "observation_normalizer" not in gin_config.bindings(_NETWORK):
        return wanted
    details = _NORMALIZED.keys() - {_NORMALIZER}
    return {parameter: value for parameter, value in wanted.items() if parameter not in details}


def _agree(parameter: str, bound: Any, wanted: Any) -> bool:
    if parameter == _NORMALIZER:  # Any normalizer will do.
        return (bound is None) == (wanted is None)
    return parameter in _NORMALIZED or bool(bound == wanted)


def _equal(name: str, sizes: tuple[int, ...]) -> tuple[int, int]:
    """(number of layers, units of each), which must all be equal."""
    if len(set(sizes)) > 1:
        raise UserError(
            f"--{name}={shown(sizes)}: the layers of this agent's network for vectors are of one "
            f"size, such as --{name}={shown((max(sizes),) * len(sizes))}."
        )
    return len(sizes), (sizes or (1,))[0]


def _tell(name: str, value: Any, parameter: str, bound: Any, chosen: bool) -> None:
    if chosen:
        raise UserError(
            f"--{name}={shown(value)} and the gin config's {parameter} = {bound!r} set the same "
            "thing differently. Leave one of them out."
        )
    text = "%s = %r of the gin config replaces --%s=%s."
    logging.info(text, parameter, bound, name, shown(value))
