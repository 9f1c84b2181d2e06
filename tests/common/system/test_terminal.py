"""Programs at a terminal: Ctrl-C while they start, closed pipes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from seed_rl.common.system import isolated
from tests.helpers.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("program", "arguments", "imported"),
    [
        ("seed_rl.launch.local", ["gym", "vtrace", "1"], "rich.text"),
        ("seed_rl.gym.vtrace_main", ["--run_mode=learner"], "numpy.linalg"),
        ("seed_rl.gym.vtrace_main", ["--run_mode=learner"], "tensorflow.python.framework.dtypes"),
        ("seed_rl.play", ["."], "numpy.linalg"),
        ("seed_rl.evaluate", ["."], "numpy.linalg"),
    ],
)
def test_ctrl_c_during_imports(program, arguments, imported, tmp_path):
    """An end without a traceback, also as `seed-rl evaluate` starts it."""
    start = ["-m", program] if program != "seed_rl.evaluate" else isolated.command(program)[1:]
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *start, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stderr is not None
        # It cannot import much more than has been read here, however late the signal comes.
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        seen = next((line for line in process.stderr if line.split()[-1] == imported), None)
        assert seen is not None, "the program has ended, or imports something else"
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert "Traceback" not in errors and "KeyboardInterrupt" not in output + errors
    assert process.returncode in (-signal.SIGINT, 130)


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        (["./run_local.sh"], ""),
        (["./stop_local.sh"], ""),
        ([sys.executable, "-m", "seed_rl.gym.r2d2_main"], ""),
        ([sys.executable, "-m", "seed_rl.gym.r2d2_main"], "1"),
        ([sys.executable, "-m", "seed_rl.play"], ""),
    ],
)
def test_help_without_a_reader(repository, command, unbuffered):
    """The worst case of `--help | head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer) as output:
        result = subprocess.run(
            [*command, "--help"],
            cwd=repository,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        )
    assert result.stderr == ""
