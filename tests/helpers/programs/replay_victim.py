"""Saves a whole replay, then half of one, and waits to be killed.

replay_victim.py DIRECTORY
"""

import sys
import time
from pathlib import Path

import numpy as np

from seed_rl.common.replay import FieldSpec, PrioritizedReplay, ReplayConfig, checkpoint


def main():
    config = ReplayConfig(replay_buffer_size=40, replay_buffer_min_size=2, replay_ratio=0.0)
    replay = PrioritizedReplay(config, FieldSpec((1 << 20,), np.uint8, time=False))
    replay.insert(np.random.default_rng(0).integers(256, size=(20, 1 << 20)).astype(np.uint8))
    folder = Path(sys.argv[1])
    (folder / "whole").mkdir()
    checkpoint.save_replay(replay, folder / "whole")
    write = checkpoint._write

    def slowly(path, parts):
        write(path, parts[:-1])
        print("writing", flush=True)
        time.sleep(600)

    checkpoint._write = slowly
    (folder / "half").mkdir()
    checkpoint.save_replay(replay, folder / "half")


if __name__ == "__main__":
    main()
