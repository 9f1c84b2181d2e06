"""Saves checkpoints and mirrors them until it is killed: LOGDIR URL."""

import pathlib
import sys

from seed_rl.cluster.mirror import Mirror
from seed_rl.cluster.remote_files import RemoteFiles
from tests.helpers.saved_logdirs import save

logdir, url = pathlib.Path(sys.argv[1]), sys.argv[2]
mirror = Mirror(RemoteFiles(url), logdir)
mirror.claim()
mirror.restore()
for number in range(1000):
    save(logdir, keep=2, megabytes=4)
    mirror.copy()
    print(number, flush=True)
