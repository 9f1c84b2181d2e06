"""The configurations of a study as trials of an Optuna study, in a journal on disk.

A configuration is a trial of the same number: Optuna draws its values and decides from its first
seed's returns whether to stop it. The other Optuna programs can read the journal
(`optuna-dashboard DIRECTORY/optuna.log`). Whether a run has ended is read from its own directory,
so nothing is lost when a study is killed between two lines of the journal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.storages.journal import JournalFileBackend

from seed_rl.common.errors import UserError
from seed_rl.study import sampling
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import Method, Spec, grid

T = TypeVar("T")
FILE_NAME = "optuna.log"
_NAME = "study"
_VALUES = "values"  # Attribute of a trial: the rounded values that are run.
_SAMPLERS = {
    "random": optuna.samplers.RandomSampler,
    "tpe": optuna.samplers.TPESampler,
    "grid": optuna.samplers.RandomSampler,  # Never asked, since all values are known.
}
_PRUNERS = {
    "none": optuna.pruners.NopPruner,
    "median": optuna.pruners.MedianPruner,
    "hyperband": optuna.pruners.HyperbandPruner,
    "successive_halving": optuna.pruners.SuccessiveHalvingPruner,
}
_State = optuna.trial.TrialState

optuna.logging.set_verbosity(optuna.logging.WARNING)


class Trials:
    """The trials of a study.

    Args:
      spec: what is studied.
      path: the journal, which is created if it is missing; None: in memory.

    Raises:
      UserError: the journal cannot be used, or Optuna refuses the sampler's or pruner's options.
    """

    def __init__(self, spec: Spec, path: Path | None = None):
        self._spec = spec
        settings = {}
        if spec.pruner.name == "median":  # Its default judges from the first interval on.
            settings["n_warmup_steps"] = spec.performance.intervals // 4
        self._pruner = _create(_PRUNERS, spec.pruner, settings)
        self._sampler(0)  # Before anything is drawn: its options may be wrong.
        self._study = self._open(path)

    def _open(self, path: Path | None) -> optuna.Study:
        sampler = optuna.samplers.RandomSampler()  # Never asked: `ask` draws outside.
        if path is None:
            return self._create_study(sampler=sampler)
        try:
            storage = optuna.storages.JournalStorage(JournalFileBackend(os.fspath(path)))
            if path.stat().st_size:
                study = optuna.load_study(
                    study_name=_NAME, storage=storage, sampler=sampler, pruner=self._pruner
                )
                if not all(_VALUES in t.user_attrs for t in study.get_trials(deepcopy=False)):
                    raise ValueError("a configuration without values")
                return study
            return self._create_study(storage=storage, sampler=sampler)
        except OSError as error:
            raise UserError(f"Cannot use {path}: {error.strerror}.") from error
        except (ValueError, KeyError) as error:
            raise UserError(
                f"{path} is damaged ({error}). Restore it, or choose another directory with "
                "--logdir=DIR."
            ) from error

    def _create_study(self, **settings: Any) -> optuna.Study:
        return optuna.create_study(
            direction="maximize", study_name=_NAME, pruner=self._pruner, **settings
        )

    def configurations(self) -> list[Configuration]:
        """Those drawn so far, in the order of their numbers."""
        return [
            Configuration(t.number, t.user_attrs[_VALUES], t.state == _State.PRUNED)
            for t in self._study.get_trials(deepcopy=False)
        ]

    def ask(self) -> Configuration:
        """Draws the next configuration.

        Each trial has a sampler with a seed of its own, so that "random" draws the same
        configurations however often the study is stopped and resumed. It draws in memory, with
        "tpe" in a copy of the study.
        """
        number = len(self._study.get_trials(deepcopy=False))
        trial: optuna.trial.BaseTrial
        if self._spec.sampler.name == "grid":
            values = grid(self._spec.choices)[number]
            labels = {name: sampling.label(value) for name, value in values.items()}
            trial = optuna.trial.FixedTrial(labels)
        else:
            drawn = self._create_study(sampler=self._sampler(number))
            if self._spec.sampler.name == "tpe":
                drawn.add_trials(self._study.get_trials(deepcopy=False))
            trial = drawn.ask()
        values = sampling.draw(self._spec, trial)
        self._study.add_trial(  # One line of the journal: it is drawn as a whole or not at all.
            optuna.trial.create_trial(
                state=_State.RUNNING,
                params=trial.params,
                distributions=trial.distributions,
                user_attrs={_VALUES: values},
            )
        )
        return Configuration(number, values)

    def report(self, number: int, curve: Sequence[float]) -> None:
        """Reports how good a configuration is after each interval, unless it is finished."""
        frozen = self._frozen(number)
        if not frozen.state.is_finished():
            trial = self._live(number)
            for step in range(len(frozen.intermediate_values), len(curve)):
                trial.report(curve[step], step)

    def prune(self, number: int) -> bool:
        """Whether to stop a configuration, by what was reported; the decision is recorded."""
        if self._frozen(number).state.is_finished() or not self._live(number).should_prune():
            return False
        self._study.tell(number, state=_State.PRUNED)
        return True

    def tell(self, number: int, performance: float) -> None:
        """Records how good a configuration is. Only the first call counts.

        Do not call it for those that fail: "tpe" would forget them, and their values. It takes
        trials without a result for bad ones.
        """
        self._study.tell(number, performance, skip_if_finished=True)

    def _sampler(self, number: int) -> optuna.samplers.BaseSampler:
        seed = zlib.crc32(f"{self._spec.sampling_seed}/{number}".encode())
        settings: dict[str, Any] = {"seed": seed}
        if self._spec.sampler.name == "tpe":
            settings["constant_liar"] = True  # Runs work in parallel.
        return _create(_SAMPLERS, self._spec.sampler, settings)

    def _frozen(self, number: int) -> optuna.trial.FrozenTrial:
        return self._study.get_trials(deepcopy=False)[number]

    def _live(self, number: int) -> optuna.Trial:
        # Optuna has no public way back to the trial of an earlier process.
        return optuna.trial.Trial(self._study, self._frozen(number)._trial_id)


def preview(spec: Spec) -> list[Configuration]:
    """As many configurations as the study will have, drawn without knowing how good others are.

    Unless the sampler is "tpe", they are those of the study.
    """
    known = spec.sampler if spec.sampler.name == "grid" else Method("random")
    trials = Trials(dataclasses.replace(spec, sampler=known))
    return [trials.ask() for _ in range(spec.configurations)]


def drop_torn_line(path: Path) -> None:
    """Removes the remains of a last line of the journal that a crash of the machine cut off.

    Optuna skips it but appends the next line to it. Only for the process that writes the journal.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def _create(
    classes: Mapping[str, Callable[..., T]], method: Method, settings: Mapping[str, Any]
) -> T:
    """Creates a sampler or pruner; the spec's options come before our settings."""
    try:
        return classes[method.name](**{**settings, **method.options})
    except (TypeError, ValueError) as error:
        raise UserError(f'Optuna refuses the options of "{method.name}": {error}') from None
