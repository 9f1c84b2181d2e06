"""Logdirs as learners leave them, without a learner."""

from __future__ import annotations

import pathlib
import shutil

from seed_rl.common.checkpoints import manifest
from seed_rl.common.run_files import checkpoint_list


def save(
    logdir: pathlib.Path, keep: int = 3, megabytes: float = 0.01, replay: bool = False
) -> pathlib.Path:
    """Saves a checkpoint in the way of `CheckpointManager`, and removes old ones."""
    folder = logdir / checkpoint_list.DIRECTORY
    entries = checkpoint_list.list_checkpoints(folder)
    serial = entries[-1].serial + 1 if entries else 1
    name = f"ckpt-{serial:06d}-step-{100 * serial:012d}"
    temporary = folder / f".saving-1-{name}"
    temporary.mkdir(parents=True)
    (temporary / "variables.index").write_text(name)
    (temporary / "variables.data-00000-of-00001").write_bytes(
        bytes([serial % 256]) * round(megabytes * 1e6)
    )
    (temporary / "metadata.json").write_text(f'{{"step": {100 * serial}}}')
    manifest.seal(temporary)
    temporary.rename(folder / name)
    if replay:
        save_replay(folder / name)
    for entry in entries[: len(entries) + 1 - keep]:
        shutil.rmtree(entry.path)
    (logdir / "returns.csv").write_text("frames\n" + "1\n" * serial)
    return folder / name


def save_replay(checkpoint: pathlib.Path) -> None:
    """Adds extra files to a checkpoint."""
    (checkpoint / "replay" / "parts").mkdir(parents=True)
    (checkpoint / "replay" / "replay.json").write_text("{}")
    (checkpoint / "replay" / "parts" / "0.bin").write_bytes(b"unrolls")


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    """All files below a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
