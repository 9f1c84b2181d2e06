"""Environments that no other process can import: lambdas, classes of a notebook, objects.

`seed_rl.train` pickles what creates them to a file, whose path its learner and actors inherit. The
run's record has no code, so its environment must be given again: `seed_rl.load(RUN, env=...)`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from seed_rl.common.errors import UserError

NAME = f"{__name__}:create"
"""As --env_name."""
_FILE = "SEED_RL_ENVIRONMENT_FILE"


@contextlib.contextmanager
def pickled(factory: Callable[..., Any]) -> Iterator[dict[str, str]]:
    """Environment variables with which other processes find what creates their environments.

    Raises:
      UserError: it cannot be pickled.
    """
    try:
        data = cloudpickle.dumps(factory)
    except Exception as error:
        raise UserError(
            f"The environment cannot be sent to other processes ({error}). Give a function that "
            "creates it, and everything that it uses, such as lambda: MyEnv()."
        ) from error
    with tempfile.NamedTemporaryFile(prefix="seed_rl_") as file:
        file.write(data)
        file.flush()
        yield {_FILE: file.name}


def create(render_mode: str | None = None, **arguments: Any) -> Any:
    """Creates an environment with the factory that another process has passed to `pickled`.

    Raises:
      UserError: there is none, or this process lacks what it needs.
    """
    from seed_rl.gym import env  # Imports Gymnasium, which `seed_rl.train` does without.

    if _FILE not in os.environ:
        raise UserError(
            "The environment of this run was given to seed_rl.train in Python, and is not saved. "
            "Give it again there: seed_rl.load(RUN, env=...)."
        )
    try:
        with open(os.environ[_FILE], "rb") as file:
            factory = cloudpickle.load(file)
    except Exception as error:
        raise UserError(
            f"The environment cannot be created in another process ({error}). Modules that it uses "
            "must be installed, or be beside your program or in the working directory."
        ) from error
    if render_mode and env.takes(factory, "render_mode"):
        arguments["render_mode"] = render_mode
    return factory(**arguments)
