"""`benchmarks.learning`: when a score counts as reached, and what other libraries' logs say."""

import argparse
import json
import math
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from benchmarks import learning
from benchmarks.learning import TASKS
from seed_rl.common.run_files import returns_log


def test_a_goal_is_reached_by_the_mean_of_100_episodes(tmp_path: Path) -> None:
    """Guards time and frames of the first such mean."""
    with (tmp_path / returns_log.FILE_NAME).open("w") as file:
        file.write("frames,time,return,raw_return,episode_frames,env_id,evaluation,success\n")
        for i in range(300):
            score = 10.0 if 50 <= i < 160 else 0.0
            file.write(f"{i * 7},{1000 + i},{score},{score},7,0,0,\n")
            file.write(f"{i * 7},{1000 + i},99,99,7,0,1,\n")  # Evaluation does not count.
    means = learning._seed_rl([]).means(tmp_path)
    learned = learning.judge(means, goal=9, began=900)
    # The first 100 episodes with a mean of 9 are 40 to 139: ten of 0, ninety of 10.
    assert learned[:4] == pytest.approx((100 + 139, 139 * 7, 10, 299 * 7))
    assert math.isnan(learning.judge(means, goal=11, began=900).seconds)


def test_too_few_episodes_are_no_score(tmp_path: Path) -> None:
    """Guards runs that have just begun."""
    (tmp_path / returns_log.FILE_NAME).write_text("")
    learned = learning.judge(learning._seed_rl([]).means(tmp_path), goal=0, began=0)
    assert math.isnan(learned.seconds) and learned.all_frames == 0


def test_monitors_of_several_environments_are_merged_by_time(tmp_path: Path) -> None:
    """Guards the frames, which each of rl_zoo3's files counts for one environment."""
    folder = tmp_path / "ppo" / "CartPole-v1_1"
    folder.mkdir(parents=True)
    for env, offset in enumerate((0.0, 0.5)):
        lines = "".join(f"{env}.0,20,{offset + i}\n" for i in range(60))
        head = '#{"t_start": 1000.0, "env_id": "CartPole-v1"}\nr,l,t\n'
        (folder / f"{env}.monitor.csv").write_text(head + lines + "1.0,2")  # Not yet whole.
    means = learning._zoo("python").means(tmp_path)
    assert len(means.means) == 120 - learning.EPISODES + 1
    assert means.means[0] == pytest.approx(0.5)
    assert means.times[0] == 1000 + 49.5  # The 100th episode is the 50th of environment 1.
    assert means.frames[0] == 100 * 20


def test_reports_of_sample_factory(tmp_path: Path) -> None:
    """Guards the form of its log: frames in one line, the mean in the next, once it has one."""
    (tmp_path / "sf_log.txt").write_text(
        "[2026-01-02 03:04:05,973][9] Fps is (10 sec: 2.2). Total num frames: 28672. Lag: 0.0)\n"
        "[2026-01-02 03:04:10,972][9] Fps is (10 sec: 3.8). Total num frames: 45056. Lag: 7.0)\n"
        "[2026-01-02 03:04:10,973][9] Avg episode reward: [(0, '-365.245')]\n"
    )
    means = learning._sample_factory("python").means(tmp_path)
    np.testing.assert_allclose(means.means, [-365.245])
    np.testing.assert_allclose(means.frames, [45056])
    assert means.times[0] == datetime(2026, 1, 2, 3, 4, 10).timestamp()


def test_the_page_has_the_table_of_the_results() -> None:
    """Guards the page from edits by hand."""
    results = Path(__file__).parents[2] / "docs/results"
    table = learning.markdown(json.loads((results / "time_to_score.json").read_text()))
    assert f"<!-- {learning.SECTION} -->\n\n{table}\n" in (results / "time_to_score.md").read_text()


def test_results_of_a_task_replace_earlier_ones(tmp_path: Path) -> None:
    """Guards the other tasks in the file, and how goals are shown that were not reached."""
    path, nan = tmp_path / "results.json", math.nan
    reached = learning.Learned(12.34, 3000, 6.0, 4000)

    def keep(task: str, limit: float, results: dict[str, list[learning.Learned]]) -> None:
        learning._keep(path, task, learning._to_json(limit, results))

    keep("cartpole", 60, {learning.OURS: [reached] * 3})
    keep("hopper", 60, {learning.OURS: [reached]})
    late = learning.Learned(nan, nan, 1234.5, 5000)
    early = late._replace(all_seconds=41.2)  # It ended by itself.
    keep("hopper", 90, {learning.OURS: [reached, late, late], "X": [late, early]})
    assert {"commit", "machine"} <= json.loads(path.read_text())["hopper"].keys()
    *_, cartpole, ours, other = learning.markdown(json.loads(path.read_text())).splitlines()
    assert cartpole == "| CartPole, 475 | **seed_rl** | 12.3, 12.3, 12.3 | 12.3 | 3,000 |"
    missed = "12.3, –, –: not in 90; at best 1,234, 1,234 | not reached | not reached"
    assert ours == f"| Hopper, 2,000 | **seed_rl** | {missed} |"
    none = "not in 90, 41; at best 1,234, 1,234 | not reached | not in 5,000 to 5,000"
    assert other == f"|  | X | {none} |"


def test_a_run_may_end_before_the_limit(tmp_path: Path) -> None:
    """Guards runs from being said to have missed the goal in a time that they did not have."""
    contestant = learning.Contestant(
        lambda *_: [sys.executable, "-c", ""], lambda _: learning._of_episodes([])
    )
    learned = learning.run(contestant, TASKS["hopper"], 1, tmp_path / "run", math.inf)
    assert math.isnan(learned.seconds) and math.isfinite(learned.all_seconds)


def test_only_libraries_with_a_command_for_a_task_run_it() -> None:
    """Guards tasks that a library has no settings for."""
    options = argparse.Namespace(flags=[], zoo_python="python", sample_factory_python="python")
    known = {name: list(learning._contestants(task, options)) for name, task in TASKS.items()}
    assert known.pop("football") == [learning.OURS]
    assert len(known.pop("cartpole")) == 3
    assert all(names == [learning.OURS, "RL Zoo PPO"] for names in known.values())


@pytest.mark.slow
@pytest.mark.nightly
def test_cartpole_is_learned_and_added_to_the_page(repository: Path, tmp_path: Path) -> None:
    """Guards the program as a whole, which trains until the goal and writes file and page."""
    file, page = tmp_path / "results.json", tmp_path / "page.md"
    page.write_text(f"<!-- {learning.SECTION} -->\n<!-- end of {learning.SECTION} -->\n")
    options = ["--tasks=cartpole", "--seeds=1", f"--json={file}", f"--page={page}"]
    command = [sys.executable, "-m", "benchmarks.learning", *options]
    subprocess.run(command, cwd=repository, check=True, timeout=1500)
    (learned,) = json.loads(file.read_text())["cartpole"]["runs"][learning.OURS]
    assert learned["seconds"] > 0 and learned["all_frames"] >= learned["frames"]
    assert f"**{learning.OURS}**" in page.read_text()
