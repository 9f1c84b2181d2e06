"""Running a main program: flags, `--help`, errors, signals and the exit code."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from absl import app, flags

from seed_rl.common.config import familiar_names, flag_origins
from seed_rl.common.config.flag_definitions import OLD_FLAGS
from seed_rl.common.errors import INTERRUPTED, UserError
from seed_rl.common.system import terminal


def run_main(
    main: Callable[[], int | None],
    prepare: Callable[[], None] | None = None,
    argv: Sequence[str] | None = None,
    instead: Mapping[str, str] | None = None,
) -> typing.NoReturn:
    """Parses flags, runs `main` and exits.

    A wrong flag prints one line and exits with code 2; a `UserError` prints one line and exits with
    the error's code. `--help` lists the options by class. SIGTERM exits with code 0 (or
    --stopped_exit_code) and SIGINT with 130, immediately unless `main` handles them (see
    `StopSignal`): until then there is nothing to save.

    Args:
      main: returns the exit code, or None for 0.
      prepare: called after flags are parsed and before `main`; with --only_check_args, `main` is
        not called.
      argv: name of the program, then flags; None: `sys.argv`.
      instead: by the names of flags that the program lacks, what to write instead.
    """

    def guarded(argv: Sequence[str]) -> int:
        # The default action does not apply to the first process of a container.
        stopped = getattr(flags.FLAGS, "stopped_exit_code", 0)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(stopped))
        interrupt: Any = terminal.interrupt_ends()
        try:
            if len(argv) > 1:
                raise UserError(f"Unknown argument '{argv[1]}'; options look like --name=value.")
            return main() or 0
        except UserError as error:
            with contextlib.suppress(OSError):  # The log's disk is full: keep the exit code.
                print(f"error: {error}", file=sys.stderr, flush=True)
            return error.exit_code
        except KeyboardInterrupt:
            return INTERRUPTED
        finally:
            # A second SIGTERM during Python's shutdown must not change the exit code.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.signal(signal.SIGINT, interrupt)
            # Otherwise garbage collection of TensorFlow's modules takes seconds at exit.
            gc.freeze()

    sys.argv = list(sys.argv if argv is None else argv)
    app.run(guarded, flags_parser=functools.partial(_parse, prepare, instead or {}))
    raise AssertionError("app.run returned")


def _parse(
    prepare: Callable[[], None] | None, instead: Mapping[str, str], argv: Sequence[str]
) -> list[str]:
    if {"--help", "-help", "-h", "-?"} & set(argv[1:]):
        terminal.end_without_reader()
        print(help_text(argv[0]))
        sys.exit(0)
    try:
        remaining = flags.FLAGS([argv[0], *flag_origins.read(argv[1:])])
        if prepare is not None:
            prepare()
        return remaining
    except flags.Error as error:
        name = getattr(error, "flagname", "")
        message = " ".join(str(error).split()).removeprefix("ERROR:: ")
        if ours := instead.get(name) or familiar_names.instead(name, set(flags.FLAGS)):
            message = f"There is no --{name} here; write {ours}"
        print(f"error: {message} (--help lists the options)", file=sys.stderr)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    sys.exit(2)


def help_text(program: str) -> str:
    """The options of the program, under the headings of their classes."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    name = f"python -m {spec.name.removesuffix('.__main__')}" if spec else program
    headings = [h for h in flags.FLAGS.flags_by_module_dict() if not _is_hidden(h)]
    texts = [flags.FLAGS.module_help(heading).strip("\n") for heading in headings]
    options = "\n\n".join(filter(None, texts))  # All flags of a heading may have been replaced.
    about = (main.__doc__ or "").strip()
    return f"{about}\n\nusage: {name} [--option=value ...]\n\n{options}\n\n--helpfull adds absl's."


def _is_hidden(heading: str) -> bool:
    """Whether the flags are absl's, a library's, or only for existing scripts."""
    return heading.startswith("absl.") or heading in sys.modules or heading == OLD_FLAGS
