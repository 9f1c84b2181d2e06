"""The supervisor with real processes: restarts, orderly ends, and nothing left behind."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
import os
import pty
import signal
import time
from unittest import mock

import pytest

from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, progress
from seed_rl.common.system.file_lock import LearnerLock
from seed_rl.launch import stop, supervisor
from seed_rl.launch.process import Process
from seed_rl.launch.restarts import RestartPolicy
from tests import helpers
from tests.helpers import PROGRAMS, run_python
from tests.helpers.run_helpers import going, is_alive, is_locked, pids
from tests.helpers.waiting import wait_until


def test_end_of_training_ends_all(start):
    """A learner that exits 0 ends the run with 0, and its actors with it."""
    run = start("end=2", "run", "2")
    assert run.wait() == 0
    assert "training has ended" in run.text()
    assert not any(is_alive(pid) for pid in pids(run, 2))
    assert (run.logdir / "logs" / "learner.log").read_text().startswith("learner of")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_exits_0(start, number):
    run = going(start, 2)
    run.signal(number)
    assert run.wait() == 0
    assert run.saved() > 0
    assert not any(is_alive(pid) for pid in pids(run, 2))


def test_a_signal_ends_the_start(tmp_path, monkeypatch):
    """Guards Ctrl-C while hundreds of actors start."""
    started = []

    def start(process):
        started.append(process.name)
        if len(started) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Process, "start", start)
    monkeypatch.setattr(Process, "pid", 2**30)  # Nobody's.
    monkeypatch.setattr(Process, "poll", lambda _: -signal.SIGTERM if started[2:] else None)
    monkeypatch.setattr(supervisor, "Guardian", mock.MagicMock())
    config = supervisor.SupervisorConfig(tmp_path / "run", actors=100)
    panel = mock.MagicMock()
    run = supervisor.Supervisor(config, lambda *_: ["true"], lambda *_: ["true"], None, panel)
    assert run.run() == 0
    assert started == ["learner", "actor 0", "actor 1"]


def test_a_proxy_that_has_served_is_restarted_until_it_serves_again(tmp_path, monkeypatch):
    """Guards long runs from a half-replaced certificate; a proxy that never served ends the run."""
    monkeypatch.setattr(supervisor, "_PROXY_SERVES_S", 0.5)
    monkeypatch.setattr(supervisor, "Guardian", mock.MagicMock())
    counter = tmp_path / "starts"
    script = (
        f'echo >> {counter}; [ "$(wc -l < {counter})" -gt 1 ] || sleep 0.6; echo broken; exit 1'
    )
    proxy = mock.MagicMock(**{"command.return_value": ["sh", "-c", script]})
    proxy.environment.return_value = {}
    restarts = RestartPolicy(first_pause_s=0.01, longest_pause_s=0.01)
    config = supervisor.SupervisorConfig(tmp_path / "run", actors=0, restarts=restarts, poll_s=0.01)
    learner = f"until [ $(wc -l < {counter}) -gt 3 ]; do sleep 0.1; done"

    def run():
        panel = mock.MagicMock()
        made = supervisor.Supervisor(
            config, lambda *_: ["sh", "-c", learner], lambda *_: [], None, panel, lambda _: proxy
        )
        return made.run(), [str(call) for call in panel.say.call_args_list]

    counter.touch()
    code, said = run()
    assert code == 0 and sum("restarting it in 0.01 s" in line for line in said) >= 3, said
    counter.write_text("\n")
    monkeypatch.setattr(supervisor, "_PROXY_SERVES_S", 60.0)  # However busy this machine is.
    code, said = run()
    assert code == 2 and any("broken" in line for line in said)


@pytest.mark.parametrize(
    ("most_failures", "error"),
    [
        (6, BlockingIOError(11, "Resource temporarily unavailable")),
        (1, BlockingIOError(11, "Resource temporarily unavailable")),
        (6, FileNotFoundError(2, "No such file or directory")),
    ],
)
def test_a_start_that_fails_is_a_crash(tmp_path, monkeypatch, most_failures, error):
    """Guards a run from a short lack of memory or processes, and a run without TensorBoard; what
    will not pass by itself ends the run."""
    original, started = Process.start, collections.Counter()

    def start(process):
        started[process.name] += 1
        if (process.name, started[process.name]) in {
            ("TensorBoard", 1),
            ("actor 0", 1),
            ("actor 0", 3),
            ("proxy", 2),
        }:
            raise error
        original(process)

    monkeypatch.setattr(Process, "start", start)
    monkeypatch.setattr(supervisor, "_PROXY_SERVES_S", 0.1)
    monkeypatch.setattr(supervisor, "Guardian", mock.MagicMock())
    report = progress.Progress(0, 1, "training", 0, 9, 1, 0, None, 0, 1, None, 0)
    (tmp_path / "report").write_text(json.dumps(dataclasses.asdict(report)))
    for name in ("actor", "proxy"):
        (tmp_path / name).touch()
    learner = f"cd {tmp_path}; mv report run/progress.json; "
    learner += "until [ $(wc -l < actor) = 2 -a $(wc -l < proxy) = 2 ]; do sleep 0.1; done"
    others = f"sleep 0.2; echo >> {tmp_path}/%s; [ $(wc -l < {tmp_path}/%s) = 1 ] || sleep 60"
    actor, served = (["sh", "-c", others.replace("%s", name)] for name in ("actor", "proxy"))
    proxy = mock.MagicMock(**{"command.return_value": served})
    proxy.environment.return_value = {}
    commands = lambda *_: ["sh", "-c", learner], lambda *_: actor
    restarts = RestartPolicy(first_pause_s=0.01, most_failures=most_failures)
    config = supervisor.SupervisorConfig(tmp_path / "run", 1, restarts=restarts, poll_s=0.01)
    panel = mock.MagicMock()
    run = supervisor.Supervisor(config, *commands, ["true"], panel, lambda _: proxy)
    continues = most_failures > 1 and isinstance(error, BlockingIOError)
    assert run.run() == (0 if continues else 1)
    said = [call.args[0] for call in panel.say.call_args_list]
    fails = f"cannot be started: {error}"
    if not continues:
        hopeless = "every actor keeps crashing. " if most_failures == 1 else ""
        assert said == [f"error: {hopeless}actor 0 {fails}"]
        return
    assert f"TensorBoard {fails}; training continues" in said
    (crash,) = [line for line in said if f"the proxy {fails}; restarting it in " in line]
    assert len([line for line in said if f"actor 0 {fails}; restarting it in " in line]) == 2


def test_ctrl_c_before_learners_start_again(tmp_path, monkeypatch):
    """Guards a clean stop from being told as an error of a learner that had lost another."""
    monkeypatch.setattr(supervisor, "Guardian", mock.MagicMock())
    report = progress.Progress(0, 1, "training", 5, 9, 1, 5, None, 0, 1, None, 0)
    (tmp_path / "report").write_text(json.dumps(dataclasses.asdict(report)))
    learners = [f"mv {tmp_path}/report {tmp_path}/run/progress.json; sleep 0.3; exit 6", "exit 1"]
    panel = mock.MagicMock()
    panel.say.side_effect = lambda text: os.kill(os.getpid(), signal.SIGINT)
    config = supervisor.SupervisorConfig(
        tmp_path / "run", 2, learners=2, restarts=RestartPolicy(first_pause_s=60)
    )
    run = supervisor.Supervisor(
        config, lambda i, _: ["sh", "-c", learners[i]], lambda *_: ["sleep", "60"], None, panel
    )
    assert run.run() == 0
    (said,) = [call.args[0] for call in panel.say.call_args_list]
    assert "learner 1 exited with code 1; restarting all learners" in said
    assert "stopped; nothing was saved" in panel.finish.call_args.args[0]


def test_a_second_start_goes_on_and_fresh_moves_aside(start, tmp_path):
    """What an earlier run saved is used, and with `fresh` kept elsewhere."""
    run = going(start, 1)
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    saved = run.saved()

    run = going(start, 1)
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    assert run.saved() > saved

    saved = run.saved()
    run = start("end", "run", "1", "fresh")
    assert run.wait() == 0
    assert run.saved() == 30
    (aside,) = tmp_path.glob("run.2*-*")
    assert checkpoint_list.saved_frames(aside) == saved


def test_killed_actors_are_restarted(start):
    """kill -9 of half the actors, twice: the others and the learner never notice."""
    run = going(start, 4)
    untouched = run.lives(0) + run.lives(1) + [run.learner()]
    for life in (1, 2):
        for task in (2, 3):
            os.kill(run.lives(task)[-1], signal.SIGKILL)
        wait_until(lambda life=life: len(run.lives(2)) > life and len(run.lives(3)) > life)
    assert all(is_alive(pid) for pid in untouched)
    assert "actor 2 was killed by SIGKILL; restarting it in 0.05 s" in run.text()
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    assert not any(is_alive(pid) for pid in pids(run, 4))


def test_actors_that_all_keep_crashing_end_the_run(start):
    """With the end of an actor's log, which has the cause; the learner saves."""
    run = start("train", "crash", "2")
    assert run.wait() == 1
    assert "every actor keeps crashing" in run.text()
    assert "RuntimeError: the environment broke" in run.text()
    assert len(run.lives(0)) >= 3
    assert run.saved()


@pytest.mark.parametrize(("silent", "code"), [([], 0), ([[1, 99.0]], 1)])
def test_actors_elsewhere_keep_a_run_alive(tmp_path, monkeypatch, silent, code):
    """Guards a run of many machines from what breaks on the learner's; actor 1 is elsewhere."""
    monkeypatch.setattr(supervisor, "Guardian", mock.MagicMock())
    report = progress.Progress(0, 1, "training", 0, 9, 1, 0, None, 0, 1, None, 0)
    report = dataclasses.replace(report, silent_envs=silent)
    (tmp_path / "report").write_text(json.dumps(dataclasses.asdict(report)))
    (starts := tmp_path / "starts").touch()
    learner = f"mv {tmp_path}/report {tmp_path}/run/progress.json; "
    learner += f"until [ $(wc -l < {starts}) -gt 4 ]; do sleep 0.1; done"
    actor = (
        f"until [ -e {tmp_path}/run/progress.json ]; do sleep 0.1; done; echo >> {starts}; false"
    )
    restarts = RestartPolicy(first_pause_s=0.01, longest_pause_s=0.01, most_failures=2)
    config = supervisor.SupervisorConfig(
        tmp_path / "run", actors=1, remote_actors=1, restarts=restarts, poll_s=0.01
    )
    commands = [lambda *_, script=script: ["sh", "-c", script] for script in (learner, actor)]
    assert supervisor.Supervisor(config, *commands, None, mock.MagicMock()).run() == code
    assert (len(starts.read_text()) > 4) == (code == 0)


@pytest.mark.parametrize("trouble", ["user_error", "user_error@1"])
def test_a_user_error_at_the_start_ends_the_run_clearly(start, trouble):
    """At once, of all actors or of one: restarting does not fix options."""
    run = start("train", trouble, "2")
    assert run.wait() == 2
    error = [line for line in run.text().splitlines() if "error: actor" in line]
    assert len(error) == 1 and "there is no game 'Pnog'; did you mean 'Pong'?" in error[0]
    assert "restarting" not in run.text() and len(run.lives(1)) <= 1
    assert not any(is_alive(pid) for task in (0, 1) for pid in run.lives(task))


def test_user_errors_after_work_end_the_run_if_they_stay(start):
    """The first may be a rare state of the environment: the actor is restarted once."""
    run = start("train", "later_user_error", "1")
    assert run.wait() == 2
    assert len(run.lives(0)) == 2
    assert "error: actor 0: there is no game 'Pnog'" in run.text()
    assert run.saved()


@pytest.mark.parametrize("trouble", ["crash", "later_user_error"])
def test_one_actor_in_trouble_leaves_the_others_alone(start, trouble):
    """However often it fails, and whatever the cause."""
    run = start("train", f"{trouble}@1", "2")
    wait_until(lambda: len(run.lives(1)) >= 5)
    assert len(run.lives(0)) == 1 and is_alive(run.lives(0)[0])
    run.signal(signal.SIGINT)
    assert run.wait() == 0


@pytest.mark.slow
def test_failures_of_long_ago_do_not_count(start):
    """The run continues while one actor works, even one that had failed too often before."""
    run = going(start, 2)
    for task in (0, 1):
        for life in range(1, 5):
            os.kill(run.lives(task)[-1], signal.SIGKILL)
            wait_until(lambda task=task, life=life: len(run.lives(task)) > life)
        time.sleep(1.2)  # Longer than a healthy life needs.
    assert all(is_alive(pid) for pid in pids(run, 2))
    run.signal(signal.SIGINT)
    assert run.wait() == 0


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGHUP])
def test_output_that_nobody_reads_any_more(start, end):
    """`... | tee log`, whose reader dies of the same Ctrl-C; a terminal that was closed."""
    read_end, write_end = os.pipe()
    run = start("train", "run", "1", stdout=write_end)
    os.close(write_end)
    wait_until(run.training)
    os.close(read_end)
    run.signal(end)
    assert run.wait() == 0
    assert run.saved()


def test_a_terminal_that_hangs_up(start):
    parent, child = pty.openpty()
    run = start("train", "run", "1", stdout=child, stderr=child, stdin=child)
    os.close(child)
    wait_until(run.training)
    os.close(parent)
    time.sleep(1.5)  # The panel is drawn twice a second.
    assert run.process.poll() is None
    run.signal(signal.SIGHUP)
    assert run.wait() == 0
    assert run.saved()


def test_a_terminal_that_hangs_up_under_nohup(start):
    """Guards `nohup ./run_local.sh ... &`, which is to survive the end of the session."""
    run = start(
        "train", "run", "1", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    wait_until(run.training)
    run.signal(signal.SIGHUP)
    time.sleep(1.5)  # Processes are looked at twice a second.
    assert run.process.poll() is None
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    assert run.saved()


def test_output_to_a_full_disk(start):
    with open("/dev/full", "w") as full:
        run = start("train", "run", "1", stdout=full)
    wait_until(run.training)
    run.signal(signal.SIGTERM)
    assert run.wait() == 0
    assert run.saved()


@pytest.mark.parametrize(("code", "expected"), [(1, 1), (2, 2), (7, 1)])
def test_a_failing_learner_ends_all_with_its_error(start, code, expected):
    run = start(f"fail={code}", "run", "2")
    assert run.wait() == expected
    assert "the port is in use" in run.text()
    assert not any(is_alive(pid) for task in (0, 1) for pid in run.lives(task))


def test_a_learner_killed_from_outside_ends_all(start):
    run = going(start, 2)
    os.kill(run.learner(), signal.SIGKILL)
    assert run.wait() == 1
    assert "the learner was killed by SIGKILL" in run.text()
    assert not any(is_alive(pid) for pid in pids(run, 2))


@pytest.mark.parametrize(("second", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_second_ctrl_c_ends_at_once_but_a_closed_terminal_does_not(start, second, code):
    run = going(start, 1, learner=f"quit_slowly={1000 if code else 1}")
    run.signal(signal.SIGINT)
    wait_until(lambda: "saving a checkpoint" in run.text())
    run.signal(second)
    assert run.wait() == code
    assert not any(is_alive(pid) for pid in pids(run, 1))
    assert code or run.saved()


def test_a_learner_that_does_not_stop_is_killed(start):
    run = going(start, 1, learner="deaf")
    run.signal(signal.SIGTERM)
    assert run.wait() == 1
    assert "did not exit within 3 s" in run.text()
    assert not is_alive(run.learner())


def test_kill_9_of_the_supervisor_leaves_nothing(start):
    """Not even an actor's own children; and the learner still saves."""
    run = going(start, 2, actor="family")
    grandchildren = [run.logdir / f"grandchild-{task}" for task in (0, 1)]
    wait_until(lambda: all(file.exists() and file.read_text() for file in grandchildren))
    all_pids = pids(run, 2) + [int(file.read_text()) for file in grandchildren]
    assert all(is_alive(pid) for pid in all_pids)
    run.signal(signal.SIGKILL)
    run.wait()
    wait_until(lambda: not any(is_alive(pid) for pid in all_pids))
    assert run.saved()
    wait_until(lambda: not is_locked(run))


def test_a_new_run_waits_for_what_a_killed_one_left(start):
    """Two learners never write into one directory."""
    run = going(start, 1, learner="quit_when_told")
    old = run.learner()
    run.signal(signal.SIGKILL)
    run.wait()
    second = start("end", "run", "1")
    wait_until(lambda: "waiting for the end of the run in" in second.text())
    assert is_alive(old)
    (run.logdir / "quit").touch()
    assert second.wait() == 0
    assert not is_alive(old)


def test_grandchildren_end_with_a_killed_actor(start):
    run = going(start, 1, actor="family")
    file = run.logdir / "grandchild-0"
    wait_until(lambda: file.exists() and file.read_text())
    grandchild = int(file.read_text())
    os.kill(run.lives(0)[-1], signal.SIGKILL)
    wait_until(lambda: not is_alive(grandchild))


def test_a_live_directory_is_refused(start):
    run = going(start, 1)
    second = start("train", "run", "1")
    assert second.wait() == 2
    assert f"A run is active in {run.logdir} (process {run.process.pid})" in second.text()
    assert is_alive(run.learner())
    assert run.process.poll() is None


def test_fresh_leaves_a_learner_without_a_supervisor_alone(tmp_path):
    """Guards runs of `experiment.run` and of clusters, whose directory would move below them."""
    config = supervisor.SupervisorConfig(tmp_path, actors=1, fresh=True)
    run = supervisor.Supervisor(config, lambda *_: [], lambda *_: [], None, mock.MagicMock())
    (tmp_path / "checkpoints").mkdir()
    lock = LearnerLock(tmp_path)
    with pytest.raises(UserError, match="A learner is already running"):
        run.run()
    assert (tmp_path / "checkpoints").exists()
    lock.release()


@pytest.mark.parametrize(
    ("names", "moves"),
    [
        *((["another-run"], False), (["study.json", "runs", "logs"], False), (["logs"], True)),
        *((["ckpt-1.index", "checkpoint"], True), (["config.json", "progress.json"], True)),
    ],
)
def test_fresh_moves_only_runs(tmp_path, names, moves):
    """Guards the folder of all runs, of a study, or of a project, that was named by mistake."""
    logdir = tmp_path / "run"
    for name in names:
        (logdir / name).mkdir(parents=True)
    config = supervisor.SupervisorConfig(logdir, actors=1, fresh=True)
    run = supervisor.Supervisor(config, lambda *_: [], lambda *_: [], None, mock.MagicMock())
    if moves:
        run._prepare_logdir().release()
    else:
        with pytest.raises(UserError, match="is not a run, so --restart=fresh does not move it"):
            run._prepare_logdir()
        assert not (logdir / "supervisor.pid").exists()  # It is left as it was.
    assert bool([*tmp_path.glob("run.2*")]) == moves


def test_a_stop_that_lost_the_last_checkpoint_says_so(tmp_path, monkeypatch, capsys):
    """Guards whoever stops a run in the background, and does not see what it prints."""
    monkeypatch.setattr(stop, "find", lambda *_: tmp_path)
    monkeypatch.setattr(stop, "stop", lambda logdir: None)
    for phase, code in (("stopped", 0), ("failed", 5)):
        progress.ProgressWriter(tmp_path, 1000).update(phase, frames=1)
        assert stop.main([str(tmp_path)]) == code
    assert "last checkpoint could NOT be saved (newest: none)" in capsys.readouterr().err


def test_a_directory_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    result = run_python(
        PROGRAMS / "supervise.py", tmp_path / "file" / "run", "train", "run", "1", code=2
    )
    assert "Cannot write to" in result.stdout and "--logdir=DIR" in result.stdout
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.parametrize("suspended", [False, True])
def test_stop_local_stops_the_run_named(start, repository, suspended):
    """stop_local.sh returns when everything has ended, with the checkpoint saved.

    Also after Ctrl-Z.
    """
    run = going(start, 2)
    if suspended:
        run.signal(signal.SIGSTOP)
    script = repository / "stop_local.sh"
    helpers.run(script, run.logdir, code=0, cwd=run.logdir.parent)
    assert run.wait() == 0
    assert run.saved()
    result = helpers.run(script, run.logdir, code=2)
    assert f"No run is active in {run.logdir}" in result.stderr


def test_stop_local_finds_the_only_run(start, repository, tmp_path):
    (tmp_path / "runs" / "pong").mkdir(parents=True)
    (tmp_path / "runs" / "first" / "runs").mkdir(parents=True)
    stop = functools.partial(helpers.run, repository / "stop_local.sh", cwd=tmp_path)
    assert "No run is active under" in stop().stderr
    first = start("train", "run", "1", name="runs/first")
    second = start("train", "run", "1", name="runs/pong/seed2")
    inside = start("train", "run", "1", name="runs/first/runs/0000-seed1")  # As in a study.
    wait_until(lambda: is_locked(first) and is_locked(second) and is_locked(inside))
    assert "Several runs are active" in stop(code=2).stderr
    wait_until(second.training)
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    wait_until(first.training)
    stop(code=0)
    assert first.wait() == 0
    inside.signal(signal.SIGTERM)
    assert inside.wait() == 0


def test_the_panel_on_a_terminal(start, tmp_path, monkeypatch):
    """Frames, returns and actors are drawn, and the closing message stays."""
    master, terminal = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    run = start("train", "run", "2", stdin=terminal, stdout=terminal, stderr=terminal)
    os.close(terminal)
    drawn = b""
    stopped = False
    with contextlib.suppress(OSError):  # EIO: everything on the terminal has ended.
        while chunk := os.read(master, 4096):
            drawn += chunk
            if not stopped and b"1.50" in drawn and b"2/2" in drawn:
                run.signal(signal.SIGINT)
                stopped = True
    os.close(master)
    assert run.wait() == 0
    assert b"a test" in drawn and b"of 1,000)" in drawn
    assert b"stopped; the same command resumes from " in drawn
