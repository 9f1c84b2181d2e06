"""The arithmetic of the analyses, against plain Python."""

import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog
from seed_rl.study import percentiles, performance, plots
from seed_rl.study.results import Performance
from seed_rl.study.sampling import Configuration
from seed_rl.study.spec import Choice, Measure


def test_percentile_of_failures():
    """Failed runs are -inf, and nothing becomes NaN."""
    values = [-math.inf] * 30 + [1.0, 2.0]
    interval = percentiles.percentile_interval(values)
    assert interval.estimate == 1.0
    assert interval.low == -math.inf and interval.high == 2.0


def test_bootstrap_interval_of_a_known_distribution():
    """Guards the coverage: P95 of 400 uniform samples has a standard error of 0.0109."""
    rng = np.random.default_rng(0)
    intervals = [percentiles.percentile_interval(rng.random(400)) for _ in range(100)]
    covered = sum(interval.low <= 0.95 <= interval.high for interval in intervals)
    assert covered >= 88
    widths = [interval.high - interval.low for interval in intervals]
    assert 0.03 < np.mean(widths) < 0.055  # 2 * 1.96 * 0.0109 = 0.043
    assert percentiles.percentile_interval([3.0]) == (3.0, 3.0, 3.0)
    assert percentiles.percentile_interval(range(1, 21)).estimate == 19.0  # Exactly 95 %.


def performances(values, sampled):
    return [
        Performance(Configuration(number, {"x": x} if x is not None else {}), value)
        for number, (value, x) in enumerate(zip(values, sampled, strict=True))
    ]


def test_the_best_are_a_twentieth_but_at_least_three():
    def number(n):
        return len(percentiles.best_of(performances(range(n), [0] * n)))

    assert [number(n) for n in (1, 2, 5, 60, 61, 140, 200)] == [1, 2, 3, 3, 4, 7, 10]
    ranked = percentiles.best_of(performances([1, 5, 5, 5, -math.inf], [0] * 5))
    assert [p.configuration.number for p in ranked] == [1, 2, 3]
    failed = percentiles.best_of(performances([-math.inf, -math.inf, 1], [0] * 3))
    assert [p.configuration.number for p in failed] == [2]


def test_analysis_of_a_choice():
    """Only configurations in which the choice exists count."""
    choice = Choice("x", "values", ("a", "b", "c"), flag="x")
    sampled = ["a", "a", "b", "b", "b", None]
    a, b, c = percentiles.analyse(choice, performances([1, 2, 30, 4, 5, 99], sampled))
    assert (a.label, a.configurations, a.percentile.estimate, a.best) == ("a", 2, 2, 0)
    assert (b.configurations, b.percentile.estimate, b.best) == (3, 30, 3)
    assert b.share == pytest.approx((1, 1 / (1 + 1.959964**2 / 3), 1))  # Wilson's interval.
    assert (c.configurations, c.percentile, c.best, c.sampled_share) == (0, None, 0, 0)
    assert a.sampled_share == 0.4 and b.sampled_share == 0.6
    assert percentiles.analyse(choice, performances([1], [None])) == []


@pytest.mark.parametrize(
    ("choice", "labels"),
    [
        (Choice("x", "values", (True, 1, "a"), flag="x"), ["true", "1", "a"]),
        (Choice("x", "integers", (2, 4), flag="x"), ["2", "3", "4"]),
        (Choice("x", "integers", (1, 10), flag="x"), ["1 – 2", "3 – 5", "6 – 7", "8 – 10"]),
        (
            Choice("x", "log_uniform", (1e-4, 1.0), flag="x"),
            ["0.0001 – 0.001", "0.001 – 0.01", "0.01 – 0.1", "0.1 – 1"],
        ),
    ],
)
def test_every_sample_is_in_one_group(choice, labels):
    groups = percentiles.groups(choice)
    assert [group.label for group in groups] == labels
    if choice.kind == "values":
        samples = list(choice.domain)
    else:
        samples = list(range(int(choice.low), int(choice.high) + 1))
        if choice.kind == "log_uniform":
            samples = [*np.geomspace(choice.low, choice.high, 50)[:-1], choice.high]
    for sample in samples:
        assert sum(group.has(sample) for group in groups) == 1


def row(frames, value, evaluation=False):
    return EpisodeRow(frames, 0.0, value, 10 * value, 1, 0, evaluation)


@hypothesis.settings(deadline=None)  # The machine may be busy.
@hypothesis.given(
    st.lists(st.tuples(st.integers(1, 1200), st.integers(-5, 5)), min_size=1), st.integers(1, 12)
)
def test_interval_means_are_those_of_plain_python(episodes, intervals):
    frames = 1000
    expected = []
    for k in range(intervals):
        last = k == intervals - 1
        inside = [
            value
            for end, value in episodes
            if k * frames < end * intervals and (last or end * intervals <= (k + 1) * frames)
        ]
        expected.append(sum(inside) / len(inside) if inside else None)
    first = next(mean for mean in expected if mean is not None)
    for k, mean in enumerate(expected):
        expected[k] = mean if mean is not None else (expected[k - 1] if k else first)
    rows = [row(end, value) for end, value in episodes]
    means = performance.interval_means(rows, frames, intervals)
    np.testing.assert_allclose(means, expected)


def test_ratings(tmp_path):
    """Short episodes do not count more than long ones; evaluation and score are apart."""
    assert performance.rate(tmp_path, 100, Measure()) is None
    log = ReturnsLog(tmp_path)
    log.add([row(10, 1.0), row(20, 1.0), row(30, 1.0), row(40, 7.0, True), row(100, 9.0)])
    log.flush()
    assert performance.rate(tmp_path, 100, Measure(intervals=2)) == (5.0, 9.0, 4)
    assert performance.rate(tmp_path, 100, Measure("final", 2)) == (9.0, 9.0, 4)
    assert performance.rate(tmp_path, 100, Measure(intervals=2, score=True)).performance == 50
    np.testing.assert_array_equal(  # A curve begins with the first episode.
        performance.curve(tmp_path, 100, Measure(), 10), [1.0] * 9 + [9.0]
    )
    np.testing.assert_array_equal(
        performance.curve(tmp_path, 100, Measure(), 20), [math.nan] + [1.0] * 18 + [9.0]
    )
    evaluated = performance.rate(tmp_path, 100, Measure(intervals=2, episodes="evaluation"))
    assert evaluated == (7.0, 7.0, 1)


def test_frames_per_second_are_without_pauses(tmp_path):
    """Guards rates of runs that were resumed, and of slow ones whose episodes end together."""
    assert performance.frames_per_s(tmp_path) is None
    log = ReturnsLog(tmp_path)
    for start in (90, 4990):
        (tmp_path / f"events.out.tfevents.{start}.host.1.0.v2").touch()
    times = [(10, 100.0), (20, 101.0), (40, 201.0), (50, 5000.0), (80, 5003.0)]
    log.add([row(frames, 1.0)._replace(time=time) for frames, time in times[:1]])
    log.flush()
    assert performance.frames_per_s(tmp_path) is None
    log.add([row(frames, 1.0)._replace(time=time) for frames, time in times[1:]])
    log.flush()
    assert performance.frames_per_s(tmp_path) == (10 + 20 + 30) / (1 + 100 + 3)


def test_each_choice_has_a_figure_of_its_own(tmp_path, monkeypatch):
    """Guards figures of choices whose names differ in what a file's name cannot have."""
    monkeypatch.setattr(plots, "draw", lambda choice, values, out: None)
    choices = [Choice(name, "uniform", (0, 1)) for name in ("a/b", "a b", "a_b")]
    paths = plots.draw_all(tmp_path, [(choice, [None]) for choice in choices])
    assert len(set(paths)) == 3 and {path.parent for path in paths} == {tmp_path / "plots"}
