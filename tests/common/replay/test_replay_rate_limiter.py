"""The rate limiter: ratio, bounds, waiting on both sides."""

import threading
import types
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import pytest

from seed_rl.common.replay import rate_limiter
from seed_rl.common.replay.rate_limiter import RateLimiter


class Impatient(RateLimiter):
    """Raises TimeoutError instead of waiting."""

    def _wait(self, may: Callable[[], bool], what: str) -> None:
        if not may():
            raise TimeoutError
        super()._wait(may, what)


def try_insert(limiter: RateLimiter, size: int) -> bool:
    try:
        limiter.await_insert()
    except TimeoutError:
        return False
    limiter.count_insert(size)
    return True


def try_sample(limiter: RateLimiter, size: int) -> bool:
    try:
        limiter.sample(size)
    except TimeoutError:
        return False
    return True


@hypothesis.settings(deadline=None, derandomize=True)
@hypothesis.given(
    ratio=st.sampled_from([0.1, 0.75, 1.0, 3.3, 40.0]),
    min_size=st.integers(1, 30),
    slack=st.integers(1, 50),
    batch=st.integers(1, 64),
    steps=st.lists(st.tuples(st.booleans(), st.integers(1, 20)), max_size=200),
)
def test_surplus_stays_within_its_bounds(
    ratio: float, min_size: int, slack: int, batch: int, steps: list
) -> None:
    """Guards the stated bounds in any order of calls, and against deadlock at every point."""
    limiter = Impatient(ratio, min_size, slack)
    bound = max(slack, batch)
    inserted, sampled = 0, 0
    for prefer_insert, size in steps:
        attempts = [(try_insert, size), (try_sample, batch)]
        for attempt, amount in attempts if prefer_insert else attempts[::-1]:
            if attempt(limiter, amount):
                inserted += amount if attempt is try_insert else 0
                sampled += amount if attempt is try_sample else 0
                break
        else:
            pytest.fail("Neither inserting nor sampling is possible.")
        assert sampled == 0 or inserted >= min_size
        surplus = ratio * max(0, inserted - min_size) - sampled
        assert -bound - 1e-6 <= surplus <= bound + ratio * 20 + 1e-6
        assert limiter.stats["surplus"] == pytest.approx(surplus, abs=1e-6)


def test_time_waited_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the figures that show which side is too slow."""
    times = iter([0.0, 3.0, 5.0, 6.0, 10.0, 12.0])
    monkeypatch.setattr(rate_limiter, "time", types.SimpleNamespace(monotonic=times.__next__))
    limiter = RateLimiter(1.0, min_size=1, slack=4)
    limiter.await_insert()
    limiter.count_insert(1)
    for _ in range(2):
        limiter.sample(1)
    assert (limiter.stats["insert_wait_s"], limiter.stats["sample_wait_s"]) == (3.0, 1.0 + 2.0)


def test_without_a_ratio_nobody_waits() -> None:
    """Guards ratio 0: off, but for `min_size`."""
    limiter = Impatient(0, min_size=2, slack=1)
    assert not try_sample(limiter, 1)
    assert all(try_insert(limiter, 100) for _ in range(50))
    assert all(try_sample(limiter, 100) for _ in range(500))


@pytest.mark.parametrize("side", ["insert", "sample"])
def test_waiting_ends_when_the_other_side_goes_on(side: str) -> None:
    """Guards the wake-ups after back-pressure in both directions."""
    limiter = RateLimiter(1.0, min_size=1, slack=4)
    limiter.count_insert(1)
    if side == "insert":
        limiter.count_insert(5)
        assert not limiter._may_insert()
        waiting = threading.Thread(target=limiter.await_insert)
        waiting.start()
        limiter.sample(4)
    else:
        limiter.sample(4)
        assert not limiter._may_sample(4)
        waiting = threading.Thread(target=limiter.sample, args=(4,))
        waiting.start()
        limiter.count_insert(4)
    waiting.join(60)
    assert not waiting.is_alive()


def test_state_goes_on_where_it_was() -> None:
    """Guards the resume: ratio and pace of the whole run, not only of the part after it."""
    limiter = Impatient(0.5, min_size=10, slack=6)
    limiter.count_insert(20)
    limiter.sample(7)
    resumed = Impatient(0.5, min_size=10, slack=6)
    resumed.restore(limiter.state(), size=20)
    for name in ("inserted", "sampled", "ratio", "surplus"):
        assert resumed.stats[name] == limiter.stats[name]
    assert try_sample(resumed, 4) == try_sample(limiter, 4)
    assert try_sample(resumed, 4) == try_sample(limiter, 4)


def test_changed_options_do_not_stall_a_resumed_run() -> None:
    """Guards a resume with another ratio: no side has to catch up with the whole past."""
    old = RateLimiter(0.0, min_size=10, slack=4)
    old.count_insert(1_000_000)
    new = Impatient(4.0, min_size=500, slack=8)
    new.restore(old.state(), size=300)
    assert not try_sample(new, 1)  # 200 more are wanted.
    assert try_insert(new, 200)
    assert try_sample(new, 8)
    assert try_insert(new, 1)


@pytest.mark.parametrize("bad", [(-1.0, 1, 1), (1.0, 0, 1), (1.0, 1, 0)])
def test_refuses_settings_that_would_deadlock(bad: tuple) -> None:
    """Guards against a limiter that lets nothing through."""
    with pytest.raises(ValueError):
        RateLimiter(*bad)


@pytest.mark.parametrize("saved", [400, -400])
def test_the_surplus_of_a_resumed_run_keeps_to_its_slack(saved):
    """Guards a run resumed with less slack: one side would wait until the past is caught up."""
    limiter = Impatient(1.0, min_size=1, slack=8)
    state = {"inserted": 101, "sampled": 0, "counted_inserts": 100, "surplus": saved}
    limiter.restore(state, size=101)
    assert limiter.stats["surplus"] == (8 if saved > 0 else -8)
