"""The verdicts of `benchmarks.hostile`, and its proxy."""

import pytest

from benchmarks import secured
from benchmarks.hostile import measuring
from seed_rl.launch import proxy
from tests.helpers import stand_in


class Memory:
    mib = (100.0, 110.0, 105.0)
    killed = False


def judge(*, calls=((10.0, 10.001), (12.0, 12.001)), **changed):
    honest = {"calls": [list(call) for call in calls], "failures": [], "pauses": []}
    honest |= {key: changed.pop(key) for key in ("failures", "pauses") if key in changed}
    arguments = {
        "newcomers": [{"ms": 5.0, "error": None}],
        "counts": {"connections": 1000},
        "memory": Memory(),
    }
    return measuring._judge("silent", 9.0, 11.0, honest, **(arguments | changed))


def test_an_attack_that_nobody_notices():
    """Guards the figures: of calls before and after the beginning of the attack, in ms."""
    result = judge(calls=[(8.0, 8.9), (10.0, 10.002), (12.0, 12.003)])
    assert not result.problems
    assert result.quiet_ms == pytest.approx((2.0, 2.0, 2.0))
    assert result.waits_ms == pytest.approx((3.0, 3.0, 3.0))
    assert (result.newcomer_ms, result.rss_mib) == (5.0, (100.0, 110.0, 105.0))


def memory(peak=110.0, last=105.0):
    result = Memory()
    result.mib = (100.0, peak, last)
    return result


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"calls": [(10.0, 10.001), (12.0, 12.501)]}, "waited 501 ms"),
        ({"calls": [(10.0, 12.0)]}, "waited 2,000 ms"),  # Begun before the attack.
        ({"failures": [(12.0, "lost")]}, "failed 1 times: lost"),
        ({"newcomers": [{"ms": 1, "error": "full"}]}, "1 newcomers did not get in: full"),
        ({"memory": memory(peak=357.0)}, "memory grew by 257 MiB"),
        ({"memory": memory(last=0.0)}, "the server or the proxy died"),
        ({"newcomers": [{"ms": 1001.0, "error": None}]}, "a newcomer took 1,001 ms"),
    ],
)
def test_what_fails(changed, problem):
    """Guards each limit."""
    (found,) = judge(**changed).problems
    assert problem in found


def test_time_in_which_the_client_did_not_run():
    """Guards the verdict on busy machines: it is taken off the wait that it overlaps."""
    result = judge(calls=[(10.0, 10.001), (12.0, 12.9)], pauses=[(11.5, 12.65), (12.8, 13.0)])
    assert result.waits_ms[2] == pytest.approx(150)
    assert not result.problems


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (None, "error: HAProxy, .* is missing: sudo apt-get install haproxy"),
        ("echo unknown keyword >&2; exit 3", "exited with code 3:\nunknown keyword"),
    ],
)
def test_a_proxy_that_does_not_start(tmp_path, monkeypatch, program, message):
    """Guards against waiting forever for its port."""
    for name in proxy.FILES:
        (tmp_path / name).touch()
    if program:
        stand_in(tmp_path / "haproxy", program)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(proxy, "_PLACES", "")
    monkeypatch.setattr(proxy, "_MAX_DIRECTORY", 1000)
    with pytest.raises(SystemExit, match=message):
        secured.start_proxy(tmp_path / "learner", secured.Secrets(tmp_path))
