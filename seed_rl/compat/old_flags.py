"""Flags of the original that have another name here, or no counterpart.

Scripts written for the original pass them. Here they set the option that now has their meaning;
where there is none, they are accepted, and one line on standard error names the replacement.
`--help` does not list them (`--helpfull` does), and records of runs do not contain them.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable
from typing import Any

from absl import flags

from seed_rl.common.config.flag_definitions import OLD_FLAGS, is_given, shown
from seed_rl.common.errors import UserError

_DEFINE: dict[type, Callable[..., Any]] = {
    bool: flags.DEFINE_bool,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}

_Options = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class OldFlag:
    """A flag of the original.

    Attributes:
      kind: type of its values.
      meaning: its replacement.
      options: `options(value)` returns the options that the flag sets, by name. Programs that have
        none of them ignore the flag, as where the function returns nothing.
    """

    kind: type
    meaning: str
    options: Callable[[Any], _Options] = lambda value: {}


def _layers(option: str, size: str = "", number: str = "") -> _Options:
    """Units of equal layers: `number` layers of `size` units; by default as many as now."""
    now = _value(option) or []
    units = _value(size) or (now[0] if now else 0)
    count = _value(number)
    count = (len(now) or 1) if count is None else count
    return {option: [units] * count} if units else {}


def _unrolls_per_step(unrolls: int) -> _Options:
    """Unrolls of a training step, divided into minibatches."""
    sizes = ("step_size_transitions", "batch_size_transitions")
    if any(_value(name) and is_given(flags.FLAGS[name]) for name in sizes):
        return {}
    given = "batch_size" if _value("batch_size") else "batches_per_step"
    quotient, rest = divmod(unrolls, _value(given) or 1)
    if rest:
        raise UserError(
            f"--step_size_unroll={unrolls} cannot be divided by --{given}={_value(given)}; choose "
            "a multiple."
        )
    return {"batches_per_step" if given == "batch_size" else "batch_size": quotient}


_MLP = functools.partial(_layers, "mlp_sizes", "mlp_size", "n_mlp_layers")
_TIMED = "--log_period_secs sets the seconds between points, which are means of all since the last"

TABLE = {
    "log_batch_frequency": OldFlag(int, _TIMED),
    "log_episode_frequency": OldFlag(int, _TIMED),
    "lr_decay_multiplier": OldFlag(
        float,
        "the learning rate decays to 0 (a multiplier of 0: --learning_rate_decay), or not at all "
        "(1: --nolearning_rate_decay); programs whose optimizer is in a gin config set it there",
        lambda value: {"learning_rate_decay": value == 0} if value in (0, 1) else {},
    ),
    "mlp_size": OldFlag(
        int, "--mlp_sizes has the units of each dense layer, or the gin config", lambda _: _MLP()
    ),
    "mujoco_model": OldFlag(
        str,
        "--xml_file is the model to simulate, where there is that flag",
        lambda value: {"xml_file": value},
    ),
    "n_lstm_layers": OldFlag(
        int,
        "--lstm_sizes has the units of each layer, where there is that flag",
        lambda value: _layers("lstm_sizes", number="n_lstm_layers"),
    ),
    "n_mlp_layers": OldFlag(
        int, "--mlp_sizes has the units of each dense layer, or the gin config", lambda _: _MLP()
    ),
    "num_checkpoints": OldFlag(
        int, "checkpoints are saved every --save_checkpoint_secs, and --checkpoints_to_keep stay"
    ),
    "num_saved_models": OldFlag(
        int,
        "--save_model exports the policy once, when the run ends",
        lambda value: {"save_model": value > 0},
    ),
    "polyak": OldFlag(
        float,
        "the fraction of the target network that an update keeps; --target_update_tau is the rest",
        lambda value: {"target_update_tau": round(1 - value, 12)},
    ),
    "prefetch_batches": OldFlag(int, "the next batch is always prepared during a training step"),
    "render": OldFlag(bool, "`seed-rl play LOGDIR` plays and films a run"),
    "step_size_unroll": OldFlag(
        int,
        "the unrolls of a training step are --batch_size x --batches_per_step, unless sizes are "
        "given in transitions",
        _unrolls_per_step,
    ),
    "unroll_queue_max_size": OldFlag(
        int, "--unroll_queue_size", lambda value: {"unroll_queue_size": value}
    ),
}
"""By name. The original's documentation does not define all of them: the meanings of
`step_size_unroll`, `mujoco_model` and `lr_decay_multiplier` follow from their names."""


def provide() -> None:
    """Defines those that the program does not define itself; its definition wins, later too."""
    for name, old in TABLE.items():
        if name not in flags.FLAGS:
            text = f"Flag of existing programs; here: {old.meaning}."
            _DEFINE[old.kind](name, None, text, module_name=OLD_FLAGS, allow_override=True)
            # Validators are called when all flags are parsed.
            flags.register_validator(name, functools.partial(_apply, name))


def _apply(name: str, value: Any) -> bool:
    """Sets the options of a flag that was given, and logs them.

    Raises:
      UserError, flags.IllegalFlagValueError: its value is not supported.
    """
    if value is None or value is False:
        return True
    old = TABLE[name]
    options = {k: v for k, v in old.options(value).items() if k in flags.FLAGS}
    news = [] if options else [f"has no effect here: {old.meaning}"]
    for option, wanted in options.items():
        flag = flags.FLAGS[option]
        text = ",".join(map(str, wanted)) if isinstance(wanted, list) else shown(wanted)
        if flag.value == wanted:
            continue
        if flag.present and not _is_one_layer(flag.value):
            news.append(f"is ignored: --{option}={shown(flag.value)} is also set")
        else:
            flag.parse(text)
            flag.using_default_value = False
            news.append(f"sets --{option}={text}")
    for line in news:
        print(f"note: --{name}={shown(value)} {line}.", file=sys.stderr)
    return True


def _is_one_layer(value: Any) -> bool:
    """Whether it is the size that a number of layers repeats."""
    return isinstance(value, list) and len(value) == 1


def _value(name: str) -> Any:
    return flags.FLAGS[name].value if name in flags.FLAGS else None
