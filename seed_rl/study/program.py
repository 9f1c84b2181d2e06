"""The program of `seed-rl study`."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from seed_rl.common.config import logdirs
from seed_rl.common.errors import UserError, exits
from seed_rl.common.system import files
from seed_rl.launch.run_lock import RunLock
from seed_rl.study import (
    aggregate,
    directory,
    display,
    percentiles,
    plots,
    results,
    runner,
    seeds,
    spec,
)
from seed_rl.study.directory import Study
from seed_rl.study.results import Result

_EPILOG = """\
Ctrl-C saves and stops all runs; the same command resumes the study. A second Ctrl-C exits
immediately. Exit code 0: finished or stopped; 1: a run failed; 2: a user error, explained in the
message. `seed-rl study aggregate` writes the results of studies as Markdown. See
docs/studies.md.
"""


@exits
def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program; returns its exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["aggregate"]:
        return aggregate.main(arguments[1:])
    if arguments[:1] == ["seeds"]:
        study, at_once = seeds.open_study(arguments[1:])
        return _run(study, at_once, retry_failed=True)
    options = _parser().parse_args(arguments)
    path = files.expanded(options.logdir or f"runs/study-{Path(options.spec).stem}")
    logdirs.check(path)
    study = directory.open_study(path, spec.load(options.spec))
    if options.results_only:
        if (record := directory.read(study.path)) is None:
            raise UserError(f"There is no study in {path}.")
        # By its own spec, of which evaluations may have been changed since.
        study = dataclasses.replace(study, spec=spec.from_json(record["spec"]))
        study.draw_recorded()
        code = _report(study, stopped=False)
    else:
        code = _run(study, options.parallel, options.retry_failed)
    if code and not options.retry_failed:
        print("To try failed runs again, add --retry_failed.")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="seed-rl study",
        description="Runs sampled configurations of an agent; writes a table and plots.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("spec", metavar="SPEC.json", help="what to sample, see docs/studies.md")
    parser.add_argument(
        "--logdir", "--directory", help="directory of runs and results (default: runs/study-SPEC)"
    )
    parser.add_argument("--parallel", type=_count, default=1, help="runs at a time (default: 1)")
    parser.add_argument("--retry_failed", action="store_true", help="resume failed runs, too")
    parser.add_argument(
        "--results_only",
        action="store_true",
        help="run nothing; write the results of finished runs",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a positive integer, not '{text}'")
    return int(text)


def _run(study: Study, parallel: int, retry_failed: bool) -> int:
    lock = RunLock(study.path, what="study")
    say = functools.partial(print, flush=True)
    try:
        # Before the spec is written: a wrong one would keep its directory.
        runner.check(study, say)
        study.write()
        runner.take_over(study, say)
        runs = study.spec.configurations * study.spec.seeds
        title = f"{study.spec.agent} on {study.spec.game}: {runs} runs in {study.path}"
        work = runner.Runner(study, parallel, retry_failed, display.create(title))
        work.run()
        return _report(study, work.stopped)
    except OSError as error:
        full = files.is_no_room(error)
        if not full and not error.filename:  # A closed terminal, or no more processes.
            raise
        room = "Free some space and repeat the command, or choose" if full else "Choose"
        raise UserError(
            f"Cannot write to {study.path}: {error.strerror}. {room} another directory with "
            "--logdir=DIR."
        ) from error
    finally:
        lock.release()


def _report(study: Study, stopped: bool) -> int:
    """Writes table and plots, lists failed runs, and returns the exit code."""
    collected = results.collect(study)
    table = results.write(study, collected)
    print(f"Wrote {table}: {_counts(collected)}.")
    ratings = results.performances(collected)
    if not study.spec.choices:
        seeds.report(study, collected)
    elif any(rating.value > -float("inf") for rating in ratings):
        analyses = [(c, percentiles.analyse(c, ratings)) for c in study.spec.choices]
        print(f"Wrote {percentiles.write(study, analyses)}: {len(ratings)} configurations.")
        best = percentiles.best_of(ratings)[0]
        number = best.configuration.number
        print(f"Best: configuration {number}, {best.value:.6g}. To train it again:")
        print(f"./run_local.sh {shlex.join(runner.training(study.spec, best.configuration))}")
        try:
            drawn = plots.draw_all(study.path, analyses)
            print(f"Drew {len(drawn)} plots in {study.path / plots.DIRECTORY}.")
        except UserError as error:
            print(f"No plots: {error}")
    failed = [result for result in collected if result.cells["status"] == "failed"]
    for run, cells in failed:
        print(f"failed: {run.name}: {cells['note']} ({run.log})")
    if stopped:
        print("stopped; the same command resumes the study")
    return 1 if failed else 0


def _counts(collected: Sequence[Result]) -> str:
    statuses = [result.cells["status"] for result in collected]
    return ", ".join(f"{statuses.count(name)} {name}" for name in dict.fromkeys(statuses))
