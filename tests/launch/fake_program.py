"""Stands in for a main program in the supervisor's tests: a real process that behaves as told.

fake_program.py learner LOGDIR [train | end | fail=CODE | deaf | quit_slowly=SECONDS]
fake_program.py actor LOGDIR TASK [run | crash | user_error | crash_once | family]

An actor's behaviour ending in @N is that of actor N alone; the others run.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from seed_rl.common import progress


def learner(logdir: pathlib.Path, behaviour: str) -> int:
    name, _, value = behaviour.partition("=")
    stops = []
    signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
    checkpoint = logdir / "checkpoint"
    frames = int(checkpoint.read_text()) if checkpoint.exists() else 0
    writer = progress.ProgressWriter(logdir, total_frames=1000, period_s=0.05)
    (logdir / "learner.pid").write_text(str(os.getpid()))
    print("learner of", logdir, flush=True)
    if name == "fail":
        print("error: the port is in use", flush=True)
        return int(value)
    while name == "deaf" or not stops:
        frames += 1
        writer.update("training", frames=frames, episode_return_mean=1.5, episodes=frames)
        if name == "end" and frames >= 30:
            break
        time.sleep(0.02)
    if name == "quit_slowly":
        time.sleep(float(value))
    checkpoint.write_text(str(frames))
    writer.update("done", frames=frames)
    return 0


def actor(logdir: pathlib.Path, task: str, behaviour: str) -> int:
    behaviour, _, only = behaviour.partition("@")
    if only not in ("", task):
        behaviour = "run"
    lives = logdir / f"lives-{task}"
    with open(lives, "a") as file:
        file.write(f"{os.getpid()}\n")
    if behaviour == "crash":
        raise RuntimeError("the environment broke")
    if behaviour == "crash_once" and len(lives.read_text().split()) == 1:
        return 3
    if behaviour == "user_error":
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
