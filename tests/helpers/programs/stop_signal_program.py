"""Waits in a call that Python's signal handlers do not interrupt, like TensorFlow's.

stop_signal_program.py hang|free [SAVE_TIME_S]

Only `free` has an `on_stop` that ends the call.
"""

import os
import sys

from seed_rl.common.system import stop_signal


def main():
    how, *save_time_s = sys.argv[1:]
    reader, writer = os.pipe()
    if save_time_s:
        stop_signal.SAVE_TIME_S = float(save_time_s[0])
    on_stop = None if how == "hang" else lambda: os.write(writer, b"x")
    with stop_signal.StopSignal(on_stop) as stop:
        print("ready", flush=True)
        os.read(reader, 1)  # Python restarts it after a signal.
        sys.exit(0 if stop.requested else 1)


if __name__ == "__main__":
    main()
