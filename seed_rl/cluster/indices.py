"""Indices that processes claim for themselves, for engines that do not number them."""

from __future__ import annotations

import os
import pathlib

from seed_rl.common.errors import UserError
from seed_rl.common.system.file_lock import try_lock


def claim(directory: pathlib.Path, kind: str, count: int) -> int:
    """Claims the lowest free index, until this process ends; a program that it execs keeps it.

    Args:
      directory: shared by all that claim; made if missing.
      kind: of processes: each kind has its own indices.
      count: number of indices.

    Raises:
      UserError: none is free, or the directory does not support locks.
    """
    for index in range(count):
        path = directory / f"{kind}-{index}.lock"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            locked = try_lock(descriptor)
        except OSError as error:
            raise UserError(
                f"Cannot claim an index in SEED_RL_INDEX_DIR={directory}: {error.strerror}. It "
                "must be a directory that this process can write to, with file locks."
            ) from error
        if locked:
            os.set_inheritable(descriptor, True)  # The lock lasts as long as a copy is open.
            return index
        os.close(descriptor)
    raise UserError(
        f"All {count} {kind}s are running already, as the locks in SEED_RL_INDEX_DIR={directory} "
        f"show. Start fewer {kind}s, or raise their number on all command lines."
    )
