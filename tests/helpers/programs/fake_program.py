"""Stands in for a main program in the supervisor's tests: a real process with a given behaviour.

fake_program.py learner LOGDIR [train | end=ACTORS | fail=CODE | deaf | quit_slowly=SECONDS |
                                quit_when_told | unsaved | importing | slow_start |
                                silent=ENVIRONMENT | chatty]
fake_program.py actor LOGDIR TASK [run | crash | user_error | later_user_error | family |
                               exit_0]

A learner that ends (after 30 frames) first waits until so many actors have started. One that quits
when told does so once the file "quit" is in LOGDIR.
An actor's behaviour ending in @N is that of actor N alone; the others run.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

# What only learners need is imported in `learner`: an actor that fails at once must not have lived
# for as long as a healthy one on a busy machine.

CHATTER = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795312722.694208    3394 port.cc:153] oneDNN custom operations are on. You may see
I0000 00:00:1795312722.694476    3394 cudart_stub.cc:31] Could not find cuda drivers
2026-01-02 03:04:05.678901: I tensorflow/core/util/port.cc:153] oneDNN custom operations are on.
To enable the following instructions: AVX2 FMA, in other operations, rebuild TensorFlow
E0000 00:00:1795312727.757586    3394 cuda_platform.cc:52] failed call to cuInit: INTERNAL
I0102 03:04:05.678901 139872 learner.py:260] Serving inference."""


def learner(logdir: pathlib.Path, behaviour: str) -> int:
    name, _, value = behaviour.partition("=")
    stops = []
    signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
    if name == "importing":
        wait_until(lambda: stops)
        return 0
    from seed_rl.common.errors import NotSavedError
    from seed_rl.common.run_files import checkpoint_list, progress

    frames = checkpoint_list.saved_frames(logdir) or 0
    writer = progress.ProgressWriter(logdir, total_frames=1000, frames=frames, period_s=0.05)
    if name == "slow_start":
        wait_until(lambda: stops)
        return 0
    (logdir / "learner.pid").write_text(str(os.getpid()))
    print("learner of", logdir, flush=True)
    if name == "fail":
        print("error: the port is in use", flush=True)
        return int(value)
    if name == "chatty":
        print(CHATTER, flush=True)
        raise RuntimeError("the loss is a string")
    if name == "end":
        wait_until(lambda: stops or len([*logdir.glob("lives-*")]) >= int(value or 1))
    silent_envs = [(int(value), 40.0)] if name == "silent" else []
    while True:
        frames += 1
        writer.update(
            "training",
            frames=frames,
            episode_return_mean=1.5,
            episodes=frames,
            silent_envs=silent_envs,
        )
        if (name == "end" and frames >= 30) or (stops and name != "deaf"):
            break
        time.sleep(0.02)
    if name == "quit_slowly":
        time.sleep(float(value))
    if name == "quit_when_told":
        wait_until((logdir / "quit").exists)
    if name == "unsaved":
        writer.update("failed", frames=frames)
        return NotSavedError.exit_code
    (logdir / checkpoint_list.DIRECTORY / f"ckpt-000001-step-{frames:012d}").mkdir(
        parents=True, exist_ok=True
    )
    reason = "it is good enough" if name == "end" else None
    writer.update("stopped" if stops else "done", frames=frames, reason=reason)
    return 0


def wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        time.sleep(0.02)


def actor(logdir: pathlib.Path, task: str, behaviour: str) -> int:
    behaviour, _, only = behaviour.partition("@")
    if only not in ("", task):
        behaviour = "run"
    lives = logdir / f"lives-{task}"
    with open(lives, "a") as file:
        file.write(f"{os.getpid()}\n")
    if behaviour == "crash":
        raise RuntimeError("the environment broke")
    if behaviour == "exit_0":
        return 0
    if behaviour == "later_user_error" and len(lives.read_text().split()) == 1:
        report = logdir / "progress.json"
        wait_until(lambda: report.exists() and '"training"' in report.read_text())
        time.sleep(1.5)  # Longer than a healthy life needs.
    if behaviour.endswith("user_error"):
        print("error: there is no game 'Pnog'; did you mean 'Pong'?", flush=True)
        return 2
    if behaviour == "family":
        child = subprocess.Popen(["sleep", "1000"], start_new_session=False)
        (logdir / f"grandchild-{task}").write_text(str(child.pid))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[2])
    sys.exit(
        learner(folder, *sys.argv[3:]) if sys.argv[1] == "learner" else actor(folder, *sys.argv[3:])
    )
