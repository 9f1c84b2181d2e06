"""The gin config of a resumed run, which keeps what the user does not set.

A run records the values of all parameters of its parts. They win over gin files that have changed
since, and over new defaults of the parts.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import gin
from absl import flags, logging
from gin import config as gin_internals

from seed_rl.agents.policy_gradient import gin_config, gin_options
from seed_rl.agents.policy_gradient.config import OnPolicyConfig
from seed_rl.common.config import flag_origins
from seed_rl.common.errors import UserError
from seed_rl.common.learner.job import TrainingJob
from seed_rl.common.run_files import run_record, saved_run

# A parameter and its value, which may continue on indented lines.
_PARAMETER = re.compile(r"^([\w./]+) = (?:\\\n)?(.*(?:\n[ \t]+.*)*)", re.MULTILINE)
_MACRO = "gin.macro"

_NETWORK = {
    *("ContinuousControlAgent", "ConvNetworkConfig", "MLPNetworkConfig", "ObservationConfig"),
    *("InputNormalization", "continuous_action_config"),
    "GeneralizedOnPolicyLoss.reward_normalizer",
}
"""Parts, and parameters of other parts, that define the network or what its outputs mean."""
_NOT_NETWORK = re.compile(r"\.(?:(?:last_)?kernel_init\w*|compute_dtype|name)$")
"""Parameters of these parts that do not: a run that continues already has its weights."""


@dataclasses.dataclass(frozen=True)
class SavedConfig:
    """The gin config of a saved run.

    Attributes:
      files: its --gin_config; None: not recorded.
      parameters: of all parts, as gin writes their values, by name.
      replayed: whether the program replays the run.
    """

    files: tuple[str, ...] | None
    parameters: dict[str, str]
    replayed: bool


def saved_config(logdir: str) -> SavedConfig | None:
    """The gin config of the run that the flags replay, or that is saved in `logdir`; None: none."""
    replayed = flag_origins.replayed_record()
    record = replayed or saved_run.record(logdir)
    if record is None:
        return None
    known, files = record.get(run_record.GIN), record.get("gin_config")
    parameters = known if isinstance(known, Mapping) else {}
    return SavedConfig(
        tuple(map(str, files)) if isinstance(files, list) else None,
        {str(name): str(value) for name, value in parameters.items()},
        replayed is not None,
    )


def load(
    config: OnPolicyConfig,
    saved: SavedConfig | None,
    options: Mapping[str, Any] | None = None,
    chosen: Collection[str] = (),
) -> gin_options.Settled:
    """Loads the gin config of a program: the saved run's, if the user gives no other files.

    Bindings in `config` win over both. A config without a shipped file has the defaults of its
    parts, and only `chosen` options.

    Args:
      config: files and bindings.
      saved: of the run that continues.
      options: settings by name, see `gin_options`.
      chosen: those that the user has given.

    Raises:
      UserError: see `gin_config.load` and `gin_options.settle`.
    """
    options = options or {}
    kept = saved is not None and _keeps(config, saved)
    parameters = saved.parameters if saved is not None else {}
    replaced = {p for name in chosen for p in gin_options.parameters(name, options[name])}
    shipped = gin_config.load(
        config.gin_config,
        config.gin_bindings,
        between=(lambda: _bind(parameters, replaced)) if kept else None,
    )
    if config.gin_config and not shipped:
        options = {name: options[name] for name in chosen}
    return gin_options.settle(options, chosen)


def record(
    job: TrainingJob, saved: SavedConfig | None, settled: gin_options.Settled = gin_options.NOTHING
) -> TrainingJob:
    """`job` with the gin config among its options and files; call it once all parts exist.

    Logs what differs from the saved run.

    Raises:
      UserError: the network differs; see `saved_run.network_refusal`.
    """
    told = {f"--{name}" if name in settled.chosen else name: p for name, p in settled.bound.items()}
    text = gin.operative_config_str()
    now = {**parsed(gin.config_str()), **parsed(text)}
    before = saved.parameters if saved is not None else {}
    kept = {name for name, old in before.items() if name in now and not _differ(old, now[name])}
    gin_config.warn_of_unused({**told, "the saved run": kept})
    if saved is not None:
        network = {*_NETWORK, type(job.algorithm.network).__name__}
        changed = {
            name: f"{name} was {old}, is now {now[name]}"
            for name, old in sorted(saved.parameters.items())
            if name in now and _differ(old, now[name])
        }
        refused = [change for name, change in changed.items() if _of_network(name, network)]
        if refused and not saved.replayed:
            raise UserError(saved_run.network_refusal(job.run.logdir, refused))
        if changed:
            lines = "; ".join(changed.values())
            logging.warning("The run continues with other gin parameters: %s.", lines)
    return dataclasses.replace(
        job,
        files={**job.files, gin_config.OPERATIVE_FILE: text},
        options={**job.options, **settled.instead, run_record.GIN: now},
    )


def _keeps(config: OnPolicyConfig, saved: SavedConfig) -> bool:
    """Whether the saved parameters win over the gin files."""
    if saved.replayed:
        return True
    if saved.files is not None and tuple(config.gin_config) != saved.files:
        return False
    # Users edit their own files to change a run.
    typed = "gin_config" in flags.FLAGS and flags.FLAGS["gin_config"].present
    return not typed or all(map(gin_config.is_shipped, config.gin_config))


def _bind(parameters: Mapping[str, str], replaced: Collection[str]) -> None:
    """Binds saved parameters except `replaced`; newer parameters of a part get their default."""
    parts: dict[Any, set[str]] = {}
    for name, text in parameters.items():
        if name in replaced:
            continue
        key: Any = name if "." in name else (name, _MACRO, "value")
        try:
            parsed = gin_internals.ParsedBindingKey.parse(key)
            gin_internals.bind_parameter(key, gin_internals.parse_value(text))
        except (ValueError, SyntaxError):
            logging.warning("The saved run has %s = %s, which no longer exists.", name, text)
        else:
            parts.setdefault(parsed.config_key, set()).add(parsed.arg_name)
    for part, names in parts.items():
        bound = gin_internals._CONFIG[part]
        for later in bound.keys() - names:
            del bound[later]


def parsed(text: str) -> dict[str, str]:
    """The values in gin's description of a config, by parameter."""
    return {name: " ".join(value.split()) for name, value in _PARAMETER.findall(text)}


def _differ(old: str, new: str) -> bool:
    try:
        return bool(ast.literal_eval(old) != ast.literal_eval(new))
    except (ValueError, SyntaxError):  # References to parts.
        return old != new


def _of_network(name: str, network: set[str]) -> bool:
    unscoped = name.rpartition("/")[2]
    part, _, parameter = unscoped.rpartition(".")
    part = part.rpartition(".")[2]
    return bool(network & {part, f"{part}.{parameter}"}) and not _NOT_NETWORK.search(name)
