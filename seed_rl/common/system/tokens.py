"""Tokens: shared secrets that clients present to a server."""

from __future__ import annotations

import functools
import logging
import os
import re
import stat

from seed_rl.common.errors import UserError

_LONGEST = 4096
"""Characters; gRPC refuses metadata above 8 KiB."""
_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH


def check(token: str, name: str = "token") -> str:
    """Returns the token if it can be sent; for others, gRPC would end the process.

    Args:
      token: the secret.
      name: what the user calls it, for the message, which never shows the secret.

    Raises:
      UserError: it is empty, too long, starts or ends with a space, or has other characters than
        visible ASCII and spaces.
    """
    if not token:
        problem = "is empty"
    elif len(token) > _LONGEST:
        problem = f"has {len(token)} characters, more than {_LONGEST}"
    elif token != token.strip(" "):
        problem = "starts or ends with a space"
    elif found := re.search(r"[^ -~]", token):
        problem = f"has {ascii(found.group())} as character {found.start() + 1}"
    else:
        return token
    raise UserError(
        f"The {name} {problem}: a token has 1 to {_LONGEST} letters, digits and signs of ASCII, "
        "without line breaks, for instance from `openssl rand -hex 32`."
    )


def read(path: str, option: str) -> str:
    """The secret in a file, without the line break after it.

    Args:
      path: the file. If others can read it, a warning says so, once.
      option: the flag that names it, for messages.

    Raises:
      UserError: the file cannot be read, or holds no token.
    """
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(2 * _LONGEST)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {option}: {error}") from error
    token = check(text.strip(), f"token in {option}={path}")
    if mode & _READABLE_BY_OTHERS:
        _warn_of_readers(path)
    return token


@functools.cache  # Once per file.
def _warn_of_readers(path: str) -> None:
    logging.warning(
        "Other users of this machine can read the token in %s. To prevent that: chmod 600 %s",
        path,
        path,
    )
