"""Forks once for every program to run; see `tests/helpers/forks.py`."""

import json
import os
import runpy
import signal
import sys

import tensorflow  # noqa: F401 - forks find it imported.


def serve() -> list[str]:
    """Answers requests with exit codes; returns only in forks, with the command to run."""
    while line := sys.stdin.readline():
        request = json.loads(line)
        child = os.fork()
        if not child:
            os.chdir(request["cwd"])
            for number, name in ((1, "stdout"), (2, "stderr")):
                file = os.open(os.path.join(request["output"], name), os.O_WRONLY | os.O_CREAT)
                os.dup2(file, number)
                os.close(file)
            sys.stdin = open(os.devnull)
            os.dup2(sys.stdin.fileno(), 0)
            signal.alarm(request["timeout_s"])
            return request["command"]
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    os._exit(0)  # Skips TensorFlow's teardown, which takes seconds.


def main() -> None:
    option, *arguments = serve()
    if option == "-m":
        sys.argv = arguments
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [option, *arguments]
        sys.path[0] = os.path.dirname(os.path.abspath(option))
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    main()
