"""Stopping on SIGINT and SIGTERM, also while the main thread is inside a call that never ends."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from seed_rl.common.system.stop_signal import StopSignal
from tests.helpers import PROGRAMS
from tests.helpers.waiting import PATIENCE_S, wait_until


def test_a_signal_asks_to_stop_and_old_handlers_come_back():
    before = signal.getsignal(signal.SIGTERM)
    ours, stopped = socket.socket(), threading.Event()
    ours.setblocking(False)
    wakeup_fd = signal.set_wakeup_fd(ours.fileno())
    with StopSignal(on_stop=stopped.set) as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(PATIENCE_S)
        assert stopped.wait(PATIENCE_S)
        # Another kind belongs to the same request: a supervisor passes Ctrl-C on as SIGTERM.
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(wakeup_fd) == ours.fileno(), "asyncio's, say"
    ours.close()


def test_a_request_needs_no_signal_and_counts_once():
    calls = []
    with StopSignal(on_stop=lambda: calls.append(1)) as stop:
        stop.request("end of training")
        stop.request()
        assert stop.requested
    assert calls == [1]


def test_it_can_be_used_in_another_thread():
    results = []

    def run():
        with StopSignal() as stop:
            stop.request()
            results.append(stop.requested)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [True]


def start_program(*arguments):
    process = subprocess.Popen(
        [sys.executable, PROGRAMS / "stop_signal_program.py", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_on_stop_frees_a_main_thread_that_waits(number):
    process = start_program("free")
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.parametrize(
    ("number", "arguments", "wait_s"),
    [(signal.SIGINT, [], 0.5), (signal.SIGTERM, ["1"], 1.5)],
    ids=["ctrl-c", "term after the time to save"],
)
def test_a_second_signal_ends_a_process_that_hangs(number, arguments, wait_s):
    process = start_program("hang", *arguments)
    process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(wait_s)
    # (On a busy machine it may have begun to count the time to save only now.)
    wait_until(lambda: process.poll() is not None or process.send_signal(number))
    assert process.returncode == 128 + number
    assert "unsaved progress is lost" in process.stderr.read()


def test_terms_in_quick_succession_are_one_request():
    """Guards the checkpoint when a job manager and a supervisor both signal the learner."""
    process = start_program("hang")
    for number in [signal.SIGTERM] * 3 + [signal.SIGINT] + [signal.SIGTERM] * 3:
        process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.2)
    process.kill()
    process.wait()
