"""Child processes of the benchmarks: compiled programs, and workers that take commands."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

P = TypeVar("P", bound="Program")

_FOLDER = pathlib.Path(__file__).parent
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def compile_actors() -> str:
    """Compiles the program of benchmarks/native/actors if necessary; returns its path.

    Raises:
      SystemExit: with the compiler's output, if compilation fails.
    """
    files = list((_FOLDER / "native/actors").iterdir())
    binary = _FOLDER.parent / "build/benchmarks/actors"
    changed = max(file.stat().st_mtime for file in files)
    if binary.exists() and binary.stat().st_mtime > changed:
        return str(binary)
    sources = sorted(str(file) for file in files if file.suffix == ".cc")
    binary.parent.mkdir(parents=True, exist_ok=True)
    try:
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "grpc++"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        command = ["g++", "-std=c++17", "-O2", *sources, "-o", str(binary), *flags]
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SystemExit(
            f"error: {error.filename} is missing; on Debian and Ubuntu: "
            "apt-get install g++ pkg-config libgrpc++-dev"
        ) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"error: {binary.name} does not compile:\n{error.stderr}") from None
    return str(binary)


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """The command-line flags of some values; those of a tuple are joined by commas."""
    texts = {name: v if isinstance(v, tuple) else (v,) for name, v in values.items()}
    return [f"--{name}={','.join(map(str, text))}" for name, text in texts.items()]


def cpu_seconds(pid: int) -> float:
    """CPU time that all threads of a process have used so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def memory_mib(pid: int) -> float:
    """Resident memory of a process in MiB; 0 if the process has ended."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


class Program:
    """A child process that prints one line when it is ready."""

    def __init__(self, command: list[str]):
        """Starts `command`; `wait_ready` waits for it."""
        self._name = " ".join(command[:4])
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def wait_ready(self) -> str:
        """Waits for the next line of output and returns it.

        Raises:
          SystemExit: if the process exited instead; its stderr has the reason.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self.check()
        return line.strip()

    def check(self) -> None:
        """Checks that the process has not exited.

        Raises:
          SystemExit: it has; its stderr has the reason.
        """
        code = self._process.poll()
        if code is not None:
            raise SystemExit(f"error: '{self._name}' exited with code {code}")

    def write_line(self, line: str) -> None:
        """Writes a line to the process."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def stop(self) -> None:
        """Kills the process."""
        self._process.kill()
        self._process.wait()

    def __enter__(self: P) -> P:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class Worker(Program):
    """A Python process that runs `serve_commands`, started as `python -m MODULE ROLE`."""

    def __init__(self, module: str, *arguments: str):
        """Starts the worker."""
        super().__init__([sys.executable, "-m", module, *arguments])

    def send(self, **command: Any) -> None:
        """Starts a command; `receive` gets its result."""
        self.write_line(json.dumps(command))

    def receive(self) -> Any:
        """The result of the last command."""
        return json.loads(self.wait_ready())


def serve_commands(run: Callable[..., Any], ready: Any = None) -> None:
    """A worker's loop: prints `ready` as JSON, then the result of `run(**command)` per command."""
    print(json.dumps(ready), flush=True)
    for line in sys.stdin:
        print(json.dumps(run(**json.loads(line))), flush=True)
