"""The spec of a study: what is fixed, what is sampled, how many runs, how they are rated."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seed_rl.common.config import familiar_names
from seed_rl.common.errors import UserError
from seed_rl.launch import arguments, games
from seed_rl.study import fields
from seed_rl.study.fields import Scalar, quoted

KINDS = ("values", "uniform", "log_uniform", "integers")
MEASURES = ("average", "final")
SAMPLERS = ("random", "grid", "tpe")
PRUNERS = ("none", "median", "hyperband", "successive_halving")
EPISODES = ("training", "evaluation")
ACTIONS = ("greedy", "sampled")
GIN_BINDINGS = "gin_bindings"

# Flags that a study sets itself, and what to write instead.
_OWN_FLAGS = {
    **arguments.SET_BY_SUPERVISOR,
    **arguments.OF_ONE_RUN,
    "seed": 'set "seeds", how often each configuration runs',
    "seeds": 'set "seeds" beside "flags"',
    "at_once": "seed-rl study --parallel=N",
    "total_environment_frames": 'set "frames"',
    "logdir": "each run has its own below the study's directory",
    "job-dir": "each run has its own below the study's directory",
    "restart": "a study resumes its runs",
    "tensorboard": "runs of a study have none; start one over its directory",
    "notensorboard": "runs of a study have none; start one over its directory",
}
_CHOICE_KEYS = (*KINDS, "flag", "gin", "if")
RUN_COLUMNS = ("configuration", "seed")
RESULT_COLUMNS = (
    *("performance", "final_return", "episodes"),
    *("evaluation_mean", "evaluation_std", "evaluation_median", "evaluation_episodes"),
    *("frames_per_s", "status", "note"),
)
"""Columns of results.csv; those of the choices stand between `RUN_COLUMNS` and these."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """Something that is sampled.

    Attributes:
      name: its column in the tables.
      kind: one of `KINDS`, which says how to read `domain`.
      domain: the values, or the lower and the upper end of the range.
      flag: the flag it sets; "" if it sets a gin binding.
      gin: the gin parameter it sets; "" if it sets a flag.
      conditions: the values that other choices must have for this one to exist, by name.
    """

    name: str
    kind: str
    domain: tuple[Scalar, ...]
    flag: str = ""
    gin: str = ""
    conditions: Mapping[str, tuple[Scalar, ...]] = dataclasses.field(default_factory=dict)

    @property
    def target(self) -> str:
        """What it sets, for messages and comparisons."""
        return _option(self.flag) if self.flag else self.gin

    @property
    def low(self) -> float:
        return float(self.domain[0])

    @property
    def high(self) -> float:
        return float(self.domain[1])


@dataclasses.dataclass(frozen=True)
class Measure:
    """How a run is rated; `seed_rl.study.performance` defines it exactly.

    Attributes:
      measure: "average": the mean return over the whole run; "final": over its last interval.
      intervals: number of equal intervals that the run is divided into.
      episodes: "training" or "evaluation" episodes.
      score: whether to use the unshaped return.
    """

    measure: str = "average"
    intervals: int = 20
    episodes: str = "training"
    score: bool = False


@dataclasses.dataclass(frozen=True)
class Method:
    """A sampler or a pruner of Optuna.

    Attributes:
      name: one of `SAMPLERS` or `PRUNERS`.
      options: keyword arguments of Optuna's class.
    """

    name: str
    options: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Spec:
    """A study.

    Attributes:
      game: with `agent`, the program that trains; or a file of the user's, whose agent may be "".
      actors: actor processes of each run.
      envs_per_actor: environments of each actor.
      frames: environment frames of each run.
      configurations: how many to sample.
      seeds: how often to run each; the runs have the seeds 1, 2, ...
      sampling_seed: seed of the sampling.
      sampler: draws configurations.
      pruner: stops runs that do worse than others.
      flags: fixed flags; a tuple is a repeated flag.
      bindings: fixed gin bindings.
      choices: what is sampled, in an order in which conditions come first.
      performance: how runs are rated.
      evaluation_episodes: how many episodes each finished run is evaluated for; 0: it is not.
      evaluation_actions: "greedy" or "sampled", as the flags of `seed_rl.evaluate`.
      description: for the reader.
    """

    game: str
    agent: str
    actors: int
    envs_per_actor: int
    frames: int
    configurations: int
    seeds: int
    sampling_seed: int
    flags: Mapping[str, Scalar | tuple[Scalar, ...]]
    bindings: Mapping[str, Scalar]
    choices: tuple[Choice, ...]
    performance: Measure
    sampler: Method = Method("random")
    pruner: Method = Method("none")
    evaluation_episodes: int = 0
    evaluation_actions: str = "greedy"
    description: str = ""


_SPEC_KEYS = tuple(field.name for field in dataclasses.fields(Spec))


def load(path: str | Path) -> Spec:
    """Reads a spec.

    Raises:
      UserError: the file cannot be read, or something in it is wrong.
    """
    try:
        content = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read the spec {path}: {error}") from None
    return from_json(fields.parse(content, str(path)), str(path))


def from_json(values: Mapping[str, Any], where: str = "the spec") -> Spec:
    """Checks a spec.

    Args:
      values: the JSON object.
      where: the file it is from, for messages.

    Raises:
      UserError: something in it is wrong.
    """
    fields.check_names(values, _SPEC_KEYS, where)
    game = fields.take(values, "game", fields.text, where)
    agent = str(values.get("agent", ""))
    if not games.is_file(game):
        agent = fields.take(values, "agent", fields.text, where)
        games.main_module(game, agent)
    choices = fields.take(values, "choices", _choices, where)
    sampler = _method(values, "sampler", SAMPLERS, where)
    if not choices and sampler.name != "grid":
        raise UserError(
            f'{where}: "choices" is empty: name at least one. (To run the same with several '
            'seeds: "sampler": "grid".)'
        )
    spec = Spec(
        game=game,
        agent=agent,
        actors=fields.take(values, "actors", fields.count, where, 1),
        envs_per_actor=fields.take(values, "envs_per_actor", fields.count, where, 1),
        frames=fields.take(values, "frames", fields.count, where),
        configurations=_configurations(values, choices, sampler, where),
        seeds=fields.take(values, "seeds", fields.count, where, 1),
        sampling_seed=fields.take(values, "sampling_seed", fields.whole, where, 0),
        flags=fields.take(values, "flags", _fixed_flags, where, {}),
        bindings=fields.take(values, "bindings", _fixed_bindings, where, {}),
        choices=choices,
        performance=fields.take(values, "performance", _measure, where, Measure()),
        sampler=sampler,
        pruner=_method(values, "pruner", PRUNERS, where),
        evaluation_episodes=fields.take(values, "evaluation_episodes", fields.natural, where, 0),
        evaluation_actions=fields.take(values, "evaluation_actions", _actions, where, "greedy"),
        description=fields.take(values, "description", fields.text, where, ""),
    )
    _check_targets(spec, where)
    return spec


def _measure(value: Any, where: str) -> Measure:
    values = fields.mapping(value, where)
    fields.check_names(values, [field.name for field in dataclasses.fields(Measure)], where)
    measure = fields.take(values, "measure", fields.text, where, "average")
    episodes = fields.take(values, "episodes", fields.text, where, "training")
    for name, given, known in (("measure", measure, MEASURES), ("episodes", episodes, EPISODES)):
        _check_known(name, given, known, where)
    intervals = fields.take(values, "intervals", fields.count, where, 20)
    return Measure(
        measure, intervals, episodes, fields.take(values, "score", fields.truth, where, False)
    )


def _actions(value: Any, where: str) -> str:
    actions = fields.text(value, where)
    _check_known("actions", actions, ACTIONS, where)
    return actions


def _check_known(name: str, given: str, known: Sequence[str], where: str) -> None:
    if given not in known:
        raise UserError(f"{where}: no {name} {quoted(given)}{fields.nearest(given, known)}")


def _configurations(
    values: Mapping[str, Any], choices: Sequence[Choice], sampler: Method, where: str
) -> int:
    """How many configurations to draw; a grid has all by default."""
    if sampler.name != "grid":
        return fields.take(values, "configurations", fields.count, where)
    for choice in choices:
        if choice.kind != "values":
            raise UserError(
                f'{where}: a grid needs lists; give {quoted(choice.name)} "values" instead of '
                f"{quoted(choice.kind)}, or choose another sampler."
            )
    number = len(grid(choices))
    wanted = fields.take(values, "configurations", fields.count, where, number)
    if wanted > number:
        raise UserError(f'{where}: the grid has {number} points; "configurations" is {wanted}.')
    return wanted


def _method(values: Mapping[str, Any], name: str, known: tuple[str, ...], where: str) -> Method:
    """Reads "tpe", or {"tpe": {"n_startup_trials": 20}}; the first of `known` if it is missing."""
    given = values.get(name, known[0])
    where = f"{where}: {quoted(name)}"
    chosen = given if isinstance(given, dict) else {fields.text(given, where): {}}
    fields.check_names(chosen, known, where)
    if len(chosen) != 1:
        raise UserError(f"{where} must be one of {', '.join(known)}, not {quoted(given)}.")
    ((method, options),) = chosen.items()
    options = fields.mapping(options, f"{where}: {quoted(method)}")
    return Method(method, {key: fields.scalar(v, f"{where}: {key}") for key, v in options.items()})


def _fixed_flags(value: Any, where: str) -> dict[str, Scalar | tuple[Scalar, ...]]:
    flags: dict[str, Scalar | tuple[Scalar, ...]] = {}
    for name, given in fields.mapping(value, where).items():
        here = f"{where}: {quoted(name)}"
        _check_flag(name, here)
        if isinstance(given, list):  # A repeated flag.
            flags[name] = tuple(fields.scalar(element, here) for element in given)
        else:
            flags[name] = fields.scalar(given, here)
    return flags


def _fixed_bindings(value: Any, where: str) -> dict[str, Scalar]:
    bindings = {}
    for name, given in fields.mapping(value, where).items():
        _check_gin(name, f"{where}: {quoted(name)}")
        bindings[name] = fields.scalar(given, f"{where}: {quoted(name)}")
    return bindings


def _choices(value: Any, where: str) -> tuple[Choice, ...]:
    choices: dict[str, Choice] = {}
    values = fields.mapping(value, where)
    for name, given in values.items():
        if name in (*RUN_COLUMNS, *RESULT_COLUMNS):
            raise UserError(
                f"{where}: {quoted(name)} is a column of results.csv; choose another name, and say "
                'with "flag" or "gin" what it sets.'
            )
        choices[name] = _choice(name, given, choices, list(values), f"{where}: {quoted(name)}")
    return tuple(choices.values())


def _choice(
    name: str, value: Any, earlier: Mapping[str, Choice], names: list[str], where: str
) -> Choice:
    values = fields.mapping(value, where)
    fields.check_names(values, _CHOICE_KEYS, where)
    kinds = [kind for kind in KINDS if kind in values]
    if len(kinds) != 1:
        given = f"has {' and '.join(kinds)}" if kinds else "does not say what to sample"
        raise UserError(f"{where} {given}; give exactly one of {', '.join(KINDS)}.")
    if "flag" in values and "gin" in values:
        raise UserError(f'{where} has both "flag" and "gin"; keep the one that the choice sets.')
    gin = fields.take(values, "gin", fields.text, where, "")
    flag = "" if gin else fields.take(values, "flag", fields.text, where, name)
    if gin:
        _check_gin(gin, where)
    else:
        _check_flag(flag, where)
    given_conditions: dict[str, Any] = fields.take(values, "if", fields.mapping, where, {})
    conditions = {
        other: _condition(other, wanted, earlier, names, f'{where}: "if"')
        for other, wanted in given_conditions.items()
    }
    domain = _domain(kinds[0], values[kinds[0]], f"{where}: {quoted(kinds[0])}")
    return Choice(name, kinds[0], domain, flag, gin, conditions)


def _domain(kind: str, value: Any, where: str) -> tuple[Scalar, ...]:
    elements = fields.listing(value, where)
    if kind == "values":
        for element in elements:
            fields.scalar(element, where)
            if sum(same(element, other) for other in elements) > 1:
                raise UserError(f"{where}: {quoted(element)} is listed twice; remove one.")
        return tuple(elements)
    if len(elements) != 2:
        raise UserError(f"{where} must be [lowest, highest], not {quoted(value)}.")
    check = fields.whole if kind == "integers" else fields.number
    low, high = (check(element, where) for element in elements)
    if not low < high:
        raise UserError(f"{where}: the lowest must be below the highest, but {low} >= {high}.")
    if kind == "log_uniform" and low <= 0:
        raise UserError(f"{where}: log-uniform ranges are above 0, but the lowest is {low}.")
    return low, high


def _condition(
    other: str, wanted: Any, earlier: Mapping[str, Choice], names: list[str], where: str
) -> tuple[Scalar, ...]:
    if other not in names:
        raise UserError(
            f"{where}: there is no choice {quoted(other)}{fields.nearest(other, names)}"
        )
    if other not in earlier:
        raise UserError(f"{where}: {quoted(other)} must come first; move it up.")
    choice = earlier[other]
    if choice.kind != "values":
        raise UserError(f"{where}: {quoted(other)} is a range; conditions need a list of values.")
    elements = wanted if isinstance(wanted, list) else [wanted]
    for element in fields.listing(elements, where):
        if not any(same(element, value) for value in choice.domain):
            known = ", ".join(map(quoted, choice.domain))
            raise UserError(f"{where}: {quoted(other)} is never {quoted(element)}, only {known}.")
    return tuple(elements)


def exists(choice: Choice, values: Mapping[str, Scalar]) -> bool:
    """Whether a choice exists, given the values of earlier ones."""
    return all(
        name in values and any(same(values[name], value) for value in wanted)
        for name, wanted in choice.conditions.items()
    )


def grid(choices: Sequence[Choice]) -> list[dict[str, Scalar]]:
    """All combinations of the listed values that can exist, the last choice varying fastest."""
    combinations: list[dict[str, Scalar]] = [{}]
    for choice in choices:
        combinations = [
            {**values, **({choice.name: value} if value is not None else {})}
            for values in combinations
            for value in (choice.domain if exists(choice, values) else (None,))
        ]
    return combinations


def same(a: Any, b: Any) -> bool:
    """Whether two scalars are the same value; 1, 1.0 and true are three (gin knows all)."""
    return type(a) is type(b) and a == b


def _check_flag(name: str, where: str) -> None:
    if name.startswith("-") or "=" in name or not name.isprintable():
        raise UserError(f"{where}: write the flag's bare name, {quoted(name.strip('-'))}.")
    if (ours := familiar_names.ours(name, _OWN_FLAGS)) in _OWN_FLAGS:
        raise UserError(f"{where}: a study sets --{name} itself; {_OWN_FLAGS[ours]}.")


def _option(flag: str) -> str:
    return f"--{familiar_names.SAME.get(flag, flag)}"


def _check_gin(name: str, where: str) -> None:
    if not re.fullmatch(r"[\w./]+", name):
        raise UserError(
            f'{where}: {quoted(name)} is not a gin parameter; write it as in "GAE.lambda_".'
        )


def _check_targets(spec: Spec, where: str) -> None:
    """Refuses flags and bindings that would be set twice in one run."""
    options = [_option(name) for name in spec.flags]
    if twice := sorted({name for name in options if options.count(name) > 1}):
        raise UserError(f'{where}: "flags" sets {twice[0]} under two names; remove one.')
    fixed = {*options, *spec.bindings}
    for number, choice in enumerate(spec.choices):
        if choice.target in fixed:
            raise UserError(f"{where}: {choice.target} is both fixed and sampled; remove one.")
        for other in spec.choices[:number]:
            if other.target == choice.target and not _exclusive(choice, other):
                raise UserError(
                    f"{where}: the choices {quoted(other.name)} and {quoted(choice.name)} both set "
                    f'{choice.target}; give them an "if" that excludes the other, or remove one.'
                )


def _exclusive(a: Choice, b: Choice) -> bool:
    """Whether two choices never exist together."""
    return any(
        not any(same(x, y) for x in a.conditions[name] for y in b.conditions[name])
        for name in a.conditions.keys() & b.conditions.keys()
    )


def to_json(spec: Spec) -> dict[str, Any]:
    """The spec with all defaults, so that specs can be compared; `from_json` reads it."""
    values = dataclasses.asdict(spec)
    values["choices"] = {choice.name: _choice_to_json(choice) for choice in spec.choices}
    values["flags"] = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in spec.flags.items()
    }
    for name in ("sampler", "pruner"):
        method = getattr(spec, name)
        values[name] = {method.name: dict(method.options)}
    if not spec.description:
        del values["description"]
    return values


def _choice_to_json(choice: Choice) -> dict[str, Any]:
    target = {"gin": choice.gin} if choice.gin else {"flag": choice.flag}
    values: dict[str, Any] = {choice.kind: list(choice.domain), **target}
    if choice.conditions:
        values["if"] = {name: list(wanted) for name, wanted in choice.conditions.items()}
    return values
