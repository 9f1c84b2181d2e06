"""Measures how soon a score is reached: minutes and frames, beside other libraries.

    python -m benchmarks.learning [--tasks=cartpole,...] [--limit=1200]
        [--zoo_python=PYTHON] [--sample_factory_python=PYTHON] [--json=FILE] [-- FLAGS ...]
    python -m benchmarks.learning --tasks= --json=FILE --page=PAGE

The first adds its tasks to FILE, in place of earlier results of the same tasks; the second writes
the table of all tasks in FILE between the markers of PAGE.

Each library runs the command that it recommends for the task, one run after another, seed by seed.
A score is the mean return of 100 training episodes in a row; Sample Factory reports such means
itself, about every 5 s. Seconds count from the start of the command, and a run ends at the goal,
after `--limit` seconds, or by itself. FLAGS are added to our commands.

The others run in virtual environments of their own:

    python3 -m venv /tmp/zoo && /tmp/zoo/bin/pip install rl_zoo3 "gymnasium[atari,mujoco]"
    python3 -m venv /tmp/sf && /tmp/sf/bin/pip install sample-factory "gymnasium[mujoco]<1.0"

`rl_zoo3` trains Stable-Baselines3 with tuned settings. It evaluates its policy in between, which
`--eval-freq=-1` turns off here, since that would count as time.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import report
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import returns_log
from seed_rl.study import aggregate
from seed_rl.study.directory import commit

EPISODES = 100
SECTION = "time_to_score"
OURS = "seed_rl"
_POLL_S = 0.5
_KILL_AFTER_S = 60


class Task(NamedTuple):
    """What is to be learned.

    Attributes:
      title: for the table of results.
      goal: mean return.
      ours: arguments of the launcher.
      zoo: the environment's name in rl_zoo3; empty: it is not compared.
      sample_factory: arguments of Python, the module first; empty: it is not compared.
    """

    title: str
    goal: float
    ours: tuple[str, ...]
    zoo: str = ""
    sample_factory: tuple[str, ...] = ()


TASKS = {
    "cartpole": Task(
        "CartPole",
        475,
        ("gym", "ppo", "2", "8", "--env_name=CartPole-v1"),
        "CartPole-v1",
        (
            *("-m", "sf_examples.train_gym_env", "--algo=APPO", "--use_rnn=False"),
            *("--num_envs_per_worker=20", "--policy_workers_per_policy=2", "--recurrence=1"),
            *("--with_vtrace=False", "--batch_size=512", "--reward_scale=0.1"),
            *("--save_every_sec=10", "--experiment_summaries_interval=10", "--env=CartPole-v1"),
        ),
    ),
    "halfcheetah": Task(
        "HalfCheetah",
        5000,
        ("mujoco", "ppo", "2", "8", "--env_name=HalfCheetah-v5"),
        "HalfCheetah-v4",
    ),
    "hopper": Task(
        "Hopper",
        2000,
        ("mujoco", "ppo", "2", "8", "--env_name=Hopper-v5"),
        "Hopper-v4",
    ),
    "pong": Task(
        "Pong",
        18,
        ("atari", "ppo", "4", "4", "--game=Pong"),
        "PongNoFrameskip-v4",
    ),
    "football": Task(
        "Football, academy_empty_goal_close",
        0.9,
        (
            *("football", "vtrace", "2", "4", "--game=academy_empty_goal_close"),
            "--flagfile=seed_rl/football/workstation.flags",
        ),
    ),
}


class Means(NamedTuple):
    """Mean returns of `EPISODES` training episodes in a row, <float64>[means] each.

    Attributes:
      times: when the last of these episodes ended, Unix time.
      frames: environment frames until then.
      means: the mean returns.
    """

    times: np.ndarray
    frames: np.ndarray
    means: np.ndarray


class Learned(NamedTuple):
    """When the goal was reached; NaN if it was not.

    Attributes:
      seconds: from the start of the command.
      frames: until the goal.
      highest: highest mean of all.
      all_frames: of the whole run.
      all_seconds: of the whole run.
    """

    seconds: float
    frames: float
    highest: float
    all_frames: float
    all_seconds: float = float("nan")


class Contestant(NamedTuple):
    """A library.

    Attributes:
      command: (task, seed, folder of the run, which does not exist) -> the command.
      means: (folder) -> what it has reached so far; raises OSError before its files exist.
    """

    command: Callable[[Task, int, pathlib.Path], list[str]]
    means: Callable[[pathlib.Path], Means]


def main() -> None:
    """Runs the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", metavar="FILE", help="add the results to FILE")
    parser.add_argument("--page", metavar="PAGE", help="update the table in PAGE from FILE")
    parser.add_argument("--tasks", default=",".join(TASKS), help="all by default: %(default)s")
    parser.add_argument("--seeds", default="1,2,3", help="one run per seed (%(default)s)")
    parser.add_argument("--limit", type=float, default=1200, help="seconds per run (%(default)s)")
    parser.add_argument("--zoo_python", metavar="PYTHON", help="that has rl_zoo3")
    parser.add_argument("--sample_factory_python", metavar="PYTHON", help="that has sample-factory")
    parser.add_argument("flags", nargs="*", help="flags for our programs, after --")
    options = parser.parse_args()
    tasks = options.tasks.split(",") if options.tasks else []
    if unknown := set(tasks) - set(TASKS):
        parser.error(f"no task {', '.join(sorted(unknown))}; there are {', '.join(TASKS)}")
    if options.page and not options.json:
        parser.error("--page needs --json")
    for path in map(pathlib.Path, filter(None, (options.json, options.page))):
        if not path.parent.is_dir():  # Not after hours of runs.
            parser.error(f"there is no directory {path.parent}")
    with tempfile.TemporaryDirectory(prefix="learning_") as temporary:
        for name in tasks:
            results = _run_task(TASKS[name], pathlib.Path(temporary, name), options)
            kept = _to_json(options.limit, results)
            print(markdown({name: kept}))
            if options.json:
                _keep(pathlib.Path(options.json), name, kept)
    if options.page:
        try:
            kept = json.loads(pathlib.Path(options.json).read_text())
            aggregate.update_page(pathlib.Path(options.page), {SECTION: markdown(kept)})
        except (OSError, UserError) as error:
            parser.error(str(error))


def _keep(path: pathlib.Path, task: str, results: Mapping[str, Any]) -> None:
    """Adds the results of a task to a file, after each task, for a later one may fail."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    kept[task] = results
    path.write_text(json.dumps(kept, indent=1) + "\n")


def _to_json(limit: float, results: Mapping[str, Sequence[Learned]]) -> dict[str, Any]:
    """The results of a task, of each library and seed."""
    runs = {
        name: [{k: _kept(v) for k, v in learned._asdict().items()} for learned in of_seeds]
        for name, of_seeds in results.items()
    }
    return {"limit": limit, "runs": runs, "commit": commit(), "machine": report.machine()}


def _kept(value: float) -> float | None:
    """JSON has no NaN."""
    return None if np.isnan(value) else round(value, 2)


def markdown(kept: Mapping[str, Any]) -> str:
    """A table of the results in a file, see `_keep`."""
    rows = [["", "", "seconds, each seed", "median", "frames, median"]]
    for task, of_task in kept.items():
        limit, label = of_task["limit"], f"{TASKS[task].title}, {TASKS[task].goal:,g}"
        for name, runs in of_task["runs"].items():
            rows.append([label, *_row(name, runs, limit)])
            label = ""
    return aggregate.table(rows) + "\n"


def _row(name: str, runs: Sequence[Mapping[str, Any]], limit: float) -> list[str]:
    late = [run for run in runs if run["seconds"] is None]
    each = ", ".join(_shown(run["seconds"]) for run in runs)
    if late:
        best = ", ".join(_shown(run["highest"]) for run in late)
        # Earlier files do not say how long a run took.
        times = [f"{min(limit, round(run.get('all_seconds') or limit)):g}" for run in late]
        missed = f"not in {times[0] if len({*times}) == 1 else ', '.join(times)}; at best {best}"
        each = f"{each}: {missed}" if len(late) < len(runs) else missed
    seconds, frames = (
        statistics.median(np.inf if run[key] is None else run[key] for run in runs)
        for key in ("seconds", "frames")
    )
    cells = [f"**{name}**" if name == OURS else name, each, _shown(seconds), _shown(frames)]
    if len(late) == len(runs):
        ends = [run["all_frames"] for run in runs]
        cells[-1] = f"not in {_shown(min(ends))} to {_shown(max(ends))}"
    return cells


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    return "not reached" if np.isinf(value) else aggregate.number(value)


def _contestants(task: Task, options: argparse.Namespace) -> dict[str, Contestant]:
    result = {OURS: _seed_rl(options.flags)}
    if options.zoo_python and task.zoo:
        result["RL Zoo PPO"] = _zoo(options.zoo_python)
    if options.sample_factory_python and task.sample_factory:
        result["Sample Factory"] = _sample_factory(options.sample_factory_python)
    return result


def _run_task(
    task: Task, folder: pathlib.Path, options: argparse.Namespace
) -> dict[str, list[Learned]]:
    contestants = _contestants(task, options)
    results: dict[str, list[Learned]] = {name: [] for name in contestants}
    for seed in map(int, options.seeds.split(",")):
        for name, contestant in contestants.items():
            run_folder = folder / f"{name.replace(' ', '_')}_{seed}"
            results[name].append(run(contestant, task, seed, run_folder, options.limit))
    return results


def run(
    contestant: Contestant, task: Task, seed: int, folder: pathlib.Path, limit: float
) -> Learned:
    """Runs one seed until the goal, or for `limit` seconds.

    Raises:
      SystemExit: the command failed; its output is in the message.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    output = folder.parent / f"{folder.name}.log"
    command = contestant.command(task, seed, folder)
    began = time.time()
    with output.open("w") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    stopped = False
    try:
        while process.poll() is None and not stopped:
            time.sleep(_POLL_S)
            learned = judge(_means(contestant, folder), task.goal, began)
            stopped = time.time() > began + limit or learned.frames > 0
    finally:
        seconds = time.time() - began
        code = _end(process)
    if code and not stopped:
        raise SystemExit(f"{output.read_text()}\nerror: exited with {code}: {' '.join(command)}")
    return judge(_means(contestant, folder), task.goal, began)._replace(all_seconds=seconds)


def judge(reached: Means, goal: float, began: float) -> Learned:
    """When a run reached a goal.

    Args:
      reached: its means, in the order of time.
      goal: mean return.
      began: Unix time of the start.
    """
    nan = float("nan")
    if not len(reached.means):
        return Learned(nan, nan, nan, 0)
    highest, frames = float(reached.means.max()), float(reached.frames[-1])
    first = np.flatnonzero(reached.means >= goal - 1e-9)
    if not len(first):
        return Learned(nan, nan, highest, frames)
    return Learned(
        float(reached.times[first[0]]) - began,
        float(reached.frames[first[0]]),
        highest,
        frames,
    )


def _means(contestant: Contestant, folder: pathlib.Path) -> Means:
    try:
        return contestant.means(folder)
    except OSError:
        return _of_episodes([])


def _end(process: subprocess.Popen[bytes]) -> int:
    """Interrupts a run as Ctrl-C does, all its processes; returns its exit code."""
    try:
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(_KILL_AFTER_S)
    except ProcessLookupError:
        return process.wait()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.wait()


def _of_episodes(episodes: list[tuple[float, float, float]]) -> Means:
    """Means over (time, frames until then, return) of episodes, in the order of time."""
    times, frames, returns = np.array(episodes, np.float64).reshape(-1, 3).T
    if len(returns) < EPISODES:
        return Means(*(np.zeros(0) for _ in Means._fields))
    means = np.convolve(returns, np.full(EPISODES, 1 / EPISODES), "valid")
    return Means(times[EPISODES - 1 :], frames[EPISODES - 1 :], means)


def _seed_rl(flags: list[str]) -> Contestant:
    def command(task: Task, seed: int, folder: pathlib.Path) -> list[str]:
        return [
            *(sys.executable, "-m", "seed_rl.launch.local", *task.ours, f"--seed={seed}"),
            *(f"--logdir={folder}", "--restart=fresh", "--tensorboard=false", *flags),
        ]

    def means(folder: pathlib.Path) -> Means:
        rows = [row for row in returns_log.read(folder / "returns.csv") if not row.evaluation]
        return _of_episodes([(row.time, row.frames, row.episode_return) for row in rows])

    return Contestant(command, means)


def _zoo(python: str) -> Contestant:
    def command(task: Task, seed: int, folder: pathlib.Path) -> list[str]:
        return [
            *(python, "-m", "rl_zoo3.train", "--algo=ppo", f"--env={task.zoo}", f"--seed={seed}"),
            *(f"--log-folder={folder}", "--eval-freq=-1", "--device=cpu"),
        ]

    def means(folder: pathlib.Path) -> Means:
        episodes = []
        for path in folder.glob("ppo/*/*.monitor.csv"):
            with path.open(newline="") as file:
                start = json.loads(file.readline().lstrip("#"))["t_start"]
                episodes += [
                    (start + float(row["t"]), int(row["l"]), float(row["r"]))
                    for row in csv.DictReader(file)
                    if row["t"]  # Else the line is still being written.
                ]
        episodes.sort()
        frames = np.cumsum([length for _, length, _ in episodes])
        return _of_episodes([(e[0], f, e[2]) for e, f in zip(episodes, frames, strict=True)])

    return Contestant(command, means)


def _sample_factory(python: str) -> Contestant:
    def command(task: Task, seed: int, folder: pathlib.Path) -> list[str]:
        return [
            *(python, *task.sample_factory, "--device=cpu", f"--seed={seed}"),
            *(f"--train_dir={folder.parent}", f"--experiment={folder.name}"),
        ]

    def means(folder: pathlib.Path) -> Means:
        reports, frames = [], 0
        for line in (folder / "sf_log.txt").read_text().splitlines():
            if match := re.search(r"Total num frames: (\d+)", line):
                frames = int(match[1])
            elif match := re.match(r"\[([-:\d ]+),.*Avg episode reward: \[\(0, '([-.\d]+)'", line):
                when = datetime.datetime.fromisoformat(match[1]).timestamp()
                reports.append((when, frames, float(match[2])))
        return Means(*np.array(reports, np.float64).reshape(-1, 3).T)

    return Contestant(command, means)


if __name__ == "__main__":
    main()
