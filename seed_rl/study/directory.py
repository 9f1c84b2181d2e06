"""A study on disk: its spec, its configurations, and the state of each run.

DIRECTORY/study.json               the spec, and the commits, machines and versions that ran it
DIRECTORY/results.csv, curves.csv  results of all runs; one listed as done but without logdir was
                                   done elsewhere, and is not run again
DIRECTORY/optuna.log               the configurations, see `seed_rl.study.trials`
DIRECTORY/runs/0003-seed1/         the logdir of a run, which can be resumed and played
DIRECTORY/runs/0003-seed1/failure.txt   why it failed, if it did
DIRECTORY/runs/0003-seed1/evaluation.json   how its agent plays, if the spec asks for it
DIRECTORY/logs/0003-seed1.log      what its launcher printed
DIRECTORY/supervisor.pid           locked while the study runs; ./stop_local.sh DIRECTORY stops it
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.system import files, processor
from seed_rl.launch import run_lock
from seed_rl.study import fields, trials
from seed_rl.study import spec as spec_lib
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import Spec
from seed_rl.study.trials import Trials

FILE_NAME = "study.json"
RESULTS = "results.csv"
EVALUATION = "evaluation.json"
_FAILURE = "failure.txt"
_PACKAGES = (
    *("tensorflow", "keras", "numpy", "gymnasium", "ale-py", "opencv-python-headless", "mujoco"),
    "envpool",
)
_PLACE = ("commits", "machines", "versions")
_MAY_GROW = ("configurations", "seeds")
_EVALUATION = ("evaluation_episodes", "evaluation_actions")
_MAY_CHANGE = ("description", *_EVALUATION)


@dataclasses.dataclass(frozen=True, eq=False)
class StudyRun:
    """One configuration with one seed.

    Attributes:
      configuration: what was sampled.
      seed: 1, 2, ...
      logdir: its directory.
      log: the file with its launcher's output.
      record: its row of results.csv if it was done elsewhere, and the study was copied without its
        runs.
    """

    configuration: Configuration
    seed: int
    logdir: Path
    log: Path
    record: Mapping[str, str] | None = None

    @property
    def name(self) -> str:
        return self.logdir.name

    @property
    def trained(self) -> bool:
        """Whether it has finished training: it used all frames, or a callback ended it."""
        report = progress.read(self.logdir)
        return report is not None and report.phase == "done"

    def done(self, spec: Spec) -> bool:
        """Whether it has finished training and been evaluated, if the spec asks for that."""
        if self.record is not None:
            return True
        return self.trained and len(self.evaluated(spec)) == spec.evaluation_episodes

    def evaluated(self, spec: Spec) -> list[float]:
        """The scores of its evaluation episodes; [] if they are not those that the spec asks for.

        An evaluation that was stopped early has too many short ones.
        """
        try:
            record = json.loads((self.logdir / EVALUATION).read_text(encoding="utf-8"))
            scores = [float(episode["score"]) for episode in record["episodes"]]
            asked_for = record["actions"] == spec.evaluation_actions
        except (OSError, ValueError, LookupError, TypeError):
            return []
        return scores if asked_for and len(scores) == spec.evaluation_episodes else []

    @property
    def failure(self) -> str | None:
        """Why it failed; None if it did not."""
        try:
            return (self.logdir / _FAILURE).read_text(encoding="utf-8").strip()
        except OSError:
            return None

    def set_failure(self, reason: str | None) -> None:
        """Marks it as failed, or removes the mark."""
        path = self.logdir / _FAILURE
        if reason is None:
            path.unlink(missing_ok=True)
        else:
            self.logdir.mkdir(parents=True, exist_ok=True)
            files.write_atomically(path, reason + "\n")

    def status(self, spec: Spec) -> str:
        """One of: done, running, pruned, failed, waiting (not saved), and, of what will resume,
        stopped, or trained if only its evaluation is missing.
        """
        if self.done(spec):
            return "done"
        if run_lock.running_pid(self.logdir) is not None:
            return "running"
        if self.configuration.pruned:
            return "pruned"
        if self.failure is not None:
            return "failed"
        if self.trained:
            return "trained"
        return "waiting" if checkpoint_list.saved_frames(self.logdir) is None else "stopped"


@dataclasses.dataclass(frozen=True)
class Study:
    """A study in a directory.

    Attributes:
      path: the absolute path of the directory.
      spec: what is studied.
    """

    path: Path
    spec: Spec

    @functools.cached_property
    def trials(self) -> Trials:
        """The configurations, for which the directory must exist."""
        return Trials(self.spec, self.path / trials.FILE_NAME)

    @functools.cached_property
    def recorded(self) -> Mapping[tuple[int, int], Mapping[str, str]]:
        """The rows of results.csv that are done, by configuration and seed."""
        path = self.path / RESULTS
        rows = read_results(path, self.spec) if path.exists() else []
        return {
            (int(row["configuration"]), int(row["seed"])): row
            for row in rows
            if row["status"] == "done"
        }

    def runs(self) -> list[StudyRun]:
        """The runs of all configurations so far, in the order in which they start."""
        return [run for one in self.trials.configurations() for run in self.runs_of(one)]

    def runs_of(self, configuration: Configuration) -> list[StudyRun]:
        """The runs of a configuration, one for each seed."""
        names = [_run_name(configuration.number, n) for n in range(1, self.spec.seeds + 1)]
        runs, logs = self.path / "runs", self.path / "logs"
        return [
            StudyRun(
                configuration,
                seed,
                runs / name,
                logs / f"{name}.log",
                None if (runs / name).exists() else self.recorded.get((configuration.number, seed)),
            )
            for seed, name in enumerate(names, 1)
        ]

    def needs_logdirs(self) -> bool:
        """Whether a run has or needs a score that only its logdir, which is gone, could give."""
        return any(
            (self.spec.evaluation_episodes or int(row["evaluation_episodes"]))
            and not (self.path / "runs" / _run_name(*key)).exists()
            for key, row in self.recorded.items()
        )

    def draw_recorded(self) -> None:
        """Draws the configurations of results.csv, if the study was copied without its journal."""
        for (number, _), row in self.recorded.items():
            if number >= (most := self.spec.configurations):
                raise UserError(
                    f"{self.path / RESULTS} has configuration {number}, but the spec has only "
                    f'{most}. Raise its "configurations", or choose another directory with '
                    "--logdir=DIR."
                )
            while len(drawn := self.trials.configurations()) <= number:
                self.trials.ask()
            values = drawn[number].values
            if any(row.get(name) != str(value) for name, value in values.items()):
                raise UserError(
                    f"Configuration {number} of {self.path / RESULTS} is not the one that this "
                    f"study draws, {drawn[number]}. A study whose draws depend on earlier results "
                    "cannot be continued without its optuna.log: copy it, too, or choose another "
                    "directory with --logdir=DIR."
                )

    def write(self) -> None:
        """Prepares the directory before anything runs; only for the study that holds its lock.

        Raises:
          OSError: the directory cannot be written.
          UserError: it has results of another study.
        """
        if read(self.path) is None:  # First: the files below without it would be of something else.
            self.path.mkdir(parents=True, exist_ok=True)
            self._write_record({})
        for name in ("runs", "logs"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        trials.drop_torn_line(self.path / trials.FILE_NAME)
        self.draw_recorded()
        self._write_record({})

    def record_place(self) -> None:
        """Writes that runs start here: at this commit, on this machine, with these versions.

        Raises:
          OSError: the directory cannot be written.
        """
        machine = f"{processor.cores()} cores ({processor.model()})"
        self._write_record({"commits": commit(), "machines": machine, "versions": versions()})

    def _write_record(self, here: Mapping[str, str]) -> None:
        before = read(self.path) or {}
        record = {
            name: list(dict.fromkeys(filter(None, [*before.get(name, ()), here.get(name)])))
            for name in _PLACE
        }
        text = json.dumps({"spec": spec_lib.to_json(self.spec), **record}, indent=1)
        files.write_atomically(self.path / FILE_NAME, f"{text}\n")


def open_study(path: Path, spec: Spec) -> Study:
    """The study of a spec in a directory, new or begun; `Study.write` prepares it.

    A study that has begun may get more configurations and more seeds.

    Raises:
      UserError: the directory has a study of another spec, or files of something else.
    """
    path = path.absolute()
    record = read(path)
    if record is None:
        return Study(path, spec)
    before = spec_lib.from_json(record["spec"], str(path / FILE_NAME))
    study = Study(path, spec)
    changes = differences(spec_lib.to_json(before), spec_lib.to_json(spec))
    for name in _EVALUATION:
        old, new = getattr(before, name), getattr(spec, name)
        if old != new and study.needs_logdirs():
            changes.append(
                f'"{name}" was {fields.quoted(old)}, is now {fields.quoted(new)}, and {RESULTS} '
                "has scores of runs that cannot be evaluated again, because their logdirs are "
                "not here"
            )
    if changes:
        raise UserError(
            f"{path} has a study of another spec: {'; '.join(changes)}. Undo that, or choose "
            "another directory with --logdir=DIR."
        )
    return study


def _run_name(configuration: int, seed: int) -> str:
    return f"{configuration:04d}-seed{seed}"


def commit() -> str:
    """What `git describe` says about the running source; "" outside a checkout."""
    root = Path(__file__).parents[2]  # It must be the repository itself, not one around it.
    command = ["git", f"--git-dir={root}/.git", f"--work-tree={root}", "describe"]
    command += ["--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def versions() -> str:
    """Those of Python and the installed packages that returns may depend on."""
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}")
    return ", ".join(found)


def read(path: Path) -> dict[str, Any] | None:
    """study.json: the spec, and what ran it; None in an empty directory.

    Raises:
      UserError: it is damaged, or the directory has files of something else.
    """
    try:
        text = (path / FILE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        if path.is_dir() and any(entry.name != run_lock.FILE_NAME for entry in path.iterdir()):
            raise UserError(
                f"{path} has files, but no study. Choose another directory with --logdir=DIR."
            ) from None
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path / FILE_NAME}: {error}") from None
    record = fields.parse(text, str(path / FILE_NAME))
    if not isinstance(record.get("spec"), dict):
        raise UserError(f"{path / FILE_NAME} is damaged. Choose another directory.")
    return record


def read_results(path: Path, spec: Spec) -> list[dict[str, str]]:
    """The rows of results.csv, of all runs.

    Raises:
      UserError: it cannot be read, or is damaged.
    """
    numbers = ("performance", "final_return", "evaluation_mean", "frames_per_s")
    return fields.read_table(
        path,
        {
            **dict.fromkeys((choice.name for choice in spec.choices), str),
            **dict.fromkeys(("configuration", "seed", "evaluation_episodes"), int),
            **dict.fromkeys(numbers, fields.optional(float)),
            **{"episodes": fields.optional(int), "status": str, "note": str},
        },
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """What differs between two specs as JSON, each with both values.

    A larger number of configurations or seeds does not count as a difference.
    """
    changes = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, now = old.get(name), new.get(name)
        where = f"{prefix}{name}"
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            changes += differences(before, now, f"{where}.")
        elif where in _MAY_CHANGE:
            continue
        elif where in _MAY_GROW and before and now and before <= now:
            continue
        elif before != now or type(before) is not type(now):
            changes.append(f"{where} was {_shown(old, name)}, is now {_shown(new, name)}")
    return changes


def _shown(values: Mapping[str, Any], name: str) -> str:
    return fields.quoted(values[name]) if name in values else "not given"
