"""A machine of three actors that never end."""

import subprocess

from seed_rl.cluster.machine import Machine

raise SystemExit(Machine(lambda task: subprocess.Popen(["sleep", "1000"])).run(range(3)))
