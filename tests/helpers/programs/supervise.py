"""Runs the real supervisor over `fake_program.py`, as `seed_rl.launch.local` does over mains.

supervise.py LOGDIR LEARNER_BEHAVIOUR ACTOR_BEHAVIOUR ACTORS [fresh]
"""

import pathlib
import sys

from seed_rl.common.errors import UserError
from seed_rl.launch import panel
from seed_rl.launch.restarts import RestartPolicy
from seed_rl.launch.supervisor import Supervisor, SupervisorConfig

# What the tests with these actors wait for; that others crash at once must hold on any machine.
HEALTHY_S = {"run": 1.0, "later_user_error": 1.4}
PROGRAM = [sys.executable, str(pathlib.Path(__file__).with_name("fake_program.py"))]


def main() -> int:
    logdir, learner, actor, actors, *rest = sys.argv[1:]
    healthy_s = HEALTHY_S.get(actor.partition("@")[0], 60.0)
    config = SupervisorConfig(
        pathlib.Path(logdir),
        int(actors),
        fresh="fresh" in rest,
        stop_timeout_s=3 if learner == "deaf" else 60,
        kill_timeout_s=2,
        restarts=RestartPolicy(first_pause_s=0.05, healthy_s=healthy_s, most_failures=3),
        silence_s=1,
        poll_s=0.02,
    )
    supervisor = Supervisor(
        config,
        lambda _, scratch: [*PROGRAM, "learner", logdir, learner],
        lambda task, scratch: [*PROGRAM, "actor", logdir, str(task), actor],
        None,
        panel.create("a test", {"logdir": logdir}),
    )
    try:
        return supervisor.run()
    except UserError as error:
        print(f"error: {error}")
        return 2


if __name__ == "__main__":
    sys.exit(main())
