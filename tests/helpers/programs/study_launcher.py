"""Stands in for `seed_rl.launch.local`: the real supervisor over `fake_program.py`.

study_launcher.py GAME AGENT ACTORS ENVS_PER_ACTOR --logdir=DIR --behaviour=LEARNER --value=X ...

LEARNER is a behaviour of `fake_program.py`, which the variable BEHAVIOUR overrides. The run's
episodes return X.
"""

import os
import pathlib
import sys
import threading

from seed_rl.common.run_files.returns_log import EpisodeRow, ReturnsLog
from seed_rl.launch import panel
from seed_rl.launch.supervisor import Supervisor, SupervisorConfig

PROGRAM = [sys.executable, str(pathlib.Path(__file__).with_name("fake_program.py"))]


def main() -> int:
    flags = dict(argument.lstrip("-").split("=", 1) for argument in sys.argv[5:])
    logdir = flags["logdir"]
    behaviour = os.environ.get("BEHAVIOUR") or flags["behaviour"]
    with open(f"{logdir}.starts", "a") as file:
        file.write(f"{behaviour}\n")
    pathlib.Path(logdir).mkdir(parents=True, exist_ok=True)
    config = SupervisorConfig(pathlib.Path(logdir), 1, stop_timeout_s=30, poll_s=0.02)
    supervisor = Supervisor(
        config,
        lambda _, scratch: [*PROGRAM, "learner", logdir, behaviour],
        lambda task, scratch: [*PROGRAM, "actor", logdir, str(task), "run"],
        None,
        panel.create("a test", {}),
    )
    ended = threading.Event()

    def play() -> None:
        """Writes the returns once the learner runs, which a run that is pruned for them saves."""
        while not (pathlib.Path(logdir) / "learner.pid").exists() and not ended.wait(0.02):
            pass
        log = ReturnsLog(logdir)
        log.add(EpisodeRow(n, 0.0, float(flags["value"]), 0.0, 1, 0, False) for n in (10, 20, 30))
        log.flush()

    playing = threading.Thread(target=play, daemon=True)
    playing.start()
    code = supervisor.run()
    ended.set()
    playing.join()
    return code


if __name__ == "__main__":
    sys.exit(main())
