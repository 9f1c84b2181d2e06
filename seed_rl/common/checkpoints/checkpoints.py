"""Checkpoints that survive `kill -9`, power failures and full disks.

A checkpoint is a directory `ckpt-<serial>-step-<step>` with

    variables.index, variables.data-*    TensorFlow's checkpoint of the trackables
    metadata.json                        step, time of saving, version, the caller's notes
    config.json                          the options of the run
    MANIFEST.json                        size and SHA-256 of every file above; written last
    <name>/...                           files added by `ExtraFiles` (a replay buffer, say)

It is written under a temporary name, flushed to disk and renamed, so a directory with that name
is complete. The manifest reveals later damage (a truncated file): a damaged checkpoint is skipped
in favour of the previous one.

Extra files may be large. They are written once the rest is safe, each directory under a temporary
name first; a failure there loses only that directory.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from seed_rl import __version__
from seed_rl.common.checkpoints import manifest, misfits
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list, run_record, saved_run
from seed_rl.common.run_files.checkpoint_list import START_OVER, list_checkpoints
from seed_rl.common.system import files

_TEMPORARY = re.compile(r"\.saving-(\d+)-.*")
_VARIABLES = "variables"

_RETRIES = 1  # A network disk, for example, may fail once.
_PROBE_BYTES = 1 << 16  # If these do not fit, no checkpoint will.


class ExtraFiles(Protocol):
    """State outside TensorFlow that is saved with a checkpoint if possible."""

    def save(self, directory: Path) -> None:
        """Writes files into `directory`, which is empty; may raise OSError."""

    def restore(self, directory: Path) -> None:
        """Reads and checks what `save` wrote; `directory` is missing if that failed."""


class CheckpointManager:
    """Saves and restores the state of one run.

    Args:
      directory: where the checkpoints go; created if missing.
      trackables: what to save, by name: agents, optimizers, `tf.Variable`s (step counters, an
        entropy parameter). All variables must exist already: call the agent once, and
        `optimizer.build(...)`. `load_weights` loads the agent named "agent".
      keep: how many of the newest checkpoints to keep.
      config: the options of the run, written into each checkpoint.
      extra: further state to write into each checkpoint, by name.

    Attributes:
      notes: those saved with the checkpoint that was restored.
      problem: why the last save failed, in a few words; None if it succeeded.

    Raises:
      UserError: the directory cannot be created or written.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        trackables: Mapping[str, Any],
        keep: int = 3,
        config: Mapping[str, Any] | None = None,
        extra: Mapping[str, ExtraFiles] | None = None,
    ):
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}.")
        for name, trackable in trackables.items():
            if isinstance(trackable, tf.keras.optimizers.Optimizer) and not trackable.built:
                # Its slot variables would silently be neither saved nor restored.
                raise ValueError(f"Build the optimizer '{name}' before saving checkpoints of it.")
        self._directory = Path(directory)
        self._checkpoint = tf.train.Checkpoint(**trackables)
        self._keep = keep
        self._config = dict(config or {})
        self._extra = dict(extra or {})
        self.problem: str | None = None
        self.notes: dict[str, Any] = {}
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            probe = self._directory / f".saving-{os.getpid()}-probe"
            try:
                with files.open_no_link(probe, "wb") as file:
                    file.write(bytes(_PROBE_BYTES))
            finally:
                probe.unlink(missing_ok=True)  # Learners in containers may have the same id.
        except OSError as error:
            raise UserError(
                f"Cannot write checkpoints to {self._directory}: {error.strerror or error}. "
                "Choose a --logdir that you may write to, or free space on its disk."
            ) from None
        self._remove_leftovers()

    def save(self, step: int, notes: Mapping[str, Any] | None = None) -> Path | None:
        """Saves everything, then removes checkpoints beyond `keep`.

        Call it between training steps.

        Args:
          step: environment frames so far.
          notes: what to say of the state besides, as JSON.

        Returns:
          The checkpoint; None if it could not be written, which logs a warning and leaves the
          older checkpoints intact.
        """
        for left in range(_RETRIES, -1, -1):
            try:
                path = self._write(step, notes or {})
            except (OSError, tf.errors.OpError) as error:
                no_room = files.is_no_room(error)
                self.problem = (
                    files.no_room(self._directory) if no_room else misfits.first_line(error)
                )
                logging.warning(
                    "Saving a checkpoint to %s failed (%s)%s",
                    self._directory,
                    misfits.first_line(error),
                    "; retrying." if left else ". The run continues; older ones are intact.",
                )
            else:
                for name, extra in self._extra.items():
                    self._add(path, name, extra)
                self._prune()
                self.problem = None
                return path
        return None

    def add_extra(self, checkpoint: str) -> None:
        """Adds `extra` to the checkpoint of this name, which another learner has saved.

        Does not check that it exists: a network disk may list new directories late.
        """
        for name, extra in self._extra.items():
            self._add(self._directory / checkpoint, name, extra)

    def restore_latest(self) -> int | None:
        """Restores the newest intact checkpoint.

        Damaged ones are skipped with a warning and renamed to `*.damaged`.

        Returns:
          Its step; None if there is no checkpoint.

        Raises:
          UserError: it does not fit this run or cannot be read, or all checkpoints are damaged.
        """
        damaged: list[Path] = []
        for entry in reversed(list_checkpoints(self._directory)):
            try:
                step = self.restore(entry.path)
            except manifest.DamagedCheckpointError as error:
                logging.warning("Skipping a damaged checkpoint: %s", error)
                damaged.append(entry.path)
                continue
            for path in damaged:
                try:
                    path.rename(path.with_name(path.name + ".damaged"))
                except OSError as error:
                    logging.warning("Cannot rename %s: %s", path, error)
            return step
        if damaged:
            raise UserError(f"Every checkpoint in {self._directory} is damaged. {START_OVER}")
        return None

    def restore(self, path: str | os.PathLike[str]) -> int:
        """Restores one checkpoint and returns its step.

        Raises:
          DamagedCheckpointError: its files differ from those that were written.
          UserError: it was saved by another agent or with other options, or cannot be read.
        """
        path = Path(path)
        manifest.verify(path)
        record = json.loads((path / checkpoint_list.METADATA).read_text("utf-8"))
        try:
            misfits.read(str(path / _VARIABLES), self._checkpoint)
        except misfits.MisfitError as misfit:
            raise UserError(self._explain(path, misfit)) from misfit
        for name, extra in self._extra.items():
            extra.restore(path / name)
        self.notes = dict(record.get("notes", {}))  # Older checkpoints have none.
        return int(record["step"])

    def _explain(self, path: Path, misfit: misfits.MisfitError) -> str:
        if changes := _suspects(path, self._config):
            return (
                f"The checkpoint {path} does not fit: {'; '.join(changes)} ({misfit}). Change that "
                f"back to continue. {START_OVER}"
            )
        return (
            f"The checkpoint {path} does not fit ({misfit}). No option explains it, so the code of "
            f"the network or the optimizer has changed. {START_OVER}"
        )

    def _write(self, step: int, notes: Mapping[str, Any]) -> Path:
        entries = list_checkpoints(self._directory, damaged=True)
        serial = entries[-1].serial + 1 if entries else 1
        target = self._directory / checkpoint_list.name(serial, step)
        temporary = self._directory / f".saving-{os.getpid()}-{target.name}"
        record = {"step": int(step), "saved": time.time(), "version": __version__, "notes": notes}
        try:
            temporary.mkdir()
            self._checkpoint.write(str(temporary / _VARIABLES))
            (temporary / checkpoint_list.METADATA).write_text(
                json.dumps(record, indent=1) + "\n", "utf-8"
            )
            run_record.write(temporary, self._config)
            manifest.seal(temporary)
            temporary.rename(target)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        files.flush_directory(self._directory)
        return target

    def _add(self, checkpoint: Path, name: str, extra: ExtraFiles) -> None:
        """Adds extra files to a checkpoint that is complete without them."""
        temporary = self._directory / f".saving-{os.getpid()}-{name}-{checkpoint.name}"
        try:
            (temporary / name).mkdir(parents=True)
            extra.save(temporary / name)
            files.flush_tree(temporary)
            (temporary / name).rename(checkpoint / name)
            files.flush_directory(checkpoint)
        except OSError as error:
            logging.warning(
                "The checkpoint %s is saved, but without its %s (%s). The run continues.",
                checkpoint,
                name,
                misfits.first_line(error),
            )
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _prune(self) -> None:
        """Removes all but the newest `keep`."""
        try:
            entries = list_checkpoints(self._directory)
        except checkpoint_list.UnreadableError as error:  # The new checkpoint is safe anyway.
            logging.warning("Cannot remove old checkpoints: %s", error)
            return
        for entry in entries[: -self._keep]:
            # Renamed first, so that a kill half-way leaves no checkpoint with missing files.
            doomed = self._directory / f".saving-{os.getpid()}-old-{entry.path.name}"
            try:
                entry.path.rename(doomed)
                shutil.rmtree(doomed)
            except OSError as error:
                logging.warning("Cannot remove the old checkpoint %s: %s", entry.path, error)

    def _remove_leftovers(self) -> None:
        """Removes temporary files and directories of learners that died while saving."""
        for path in self._directory.iterdir():
            match = _TEMPORARY.fullmatch(path.name)
            if match and not _alive_elsewhere(int(match[1])):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    with contextlib.suppress(OSError):
                        path.unlink()  # A probe.


def load_weights(
    path: str | os.PathLike[str],
    agent: Any,
    config: Mapping[str, Any] | None = None,
    network: Collection[str] = (),
    others: Mapping[str, Any] | None = None,
) -> Path:
    """Loads only an agent's weights from a checkpoint (`--init_checkpoint`).

    Args:
      path: a checkpoint, a directory of checkpoints (of which the newest intact one is used), the
        logdir of a run, or the prefix of a checkpoint written with
        `tf.train.Checkpoint(agent=...)`.
      agent: its variables exist already.
      config: all options by name, to report which of them differ if the weights do not fit.
      network: names of the options that define the network; a difference among them causes a
        warning even if the weights fit.
      others: `Algorithm.checkpointables`, which may act besides the agent, are loaded, too; a
        prefix written by another program may lack them.

    Returns:
      The directory of the checkpoint.

    Raises:
      UserError: there is no intact checkpoint, it was saved by another agent, or it cannot be
        read.
    """
    prefix = _variables_prefix(Path(path))
    try:
        misfits.read(prefix, tf.train.Checkpoint(agent=agent, **others or {}), partly=True)
    except misfits.MisfitError as misfit:
        changes = _suspects(Path(prefix).parent, config or {})
        what = f": {'; '.join(changes)}" if changes else ""
        raise UserError(
            f"The weights in {path} do not fit this agent{what} ({misfit}). Agent, network and "
            "environment must be those of the run that saved them."
        ) from misfit
    own = {name: value for name, value in (config or {}).items() if name in network}
    if changes := _suspects(Path(prefix).parent, own):
        logging.warning("The weights in %s are from another network: %s.", path, "; ".join(changes))
    return Path(prefix).parent


def _suspects(checkpoint: Path, config: Mapping[str, Any]) -> list[str]:
    """The options that differ from those of a checkpoint, if they may explain a misfit."""
    try:
        return saved_run.suspects(run_record.read(checkpoint), config)
    except UserError:
        return []


def _variables_prefix(path: Path) -> str:
    # `with_name` refuses ".", which has no name; `Path.exists` raises for some paths.
    if os.path.exists(f"{path}.index"):
        return str(path)
    # Users may have renamed copies of good checkpoints.
    metadata = path / checkpoint_list.METADATA
    if checkpoint_list.NAME.fullmatch(path.name) or os.path.exists(metadata):
        candidates = [path]
    else:
        entries = list_checkpoints(path) or list_checkpoints(path / checkpoint_list.DIRECTORY)
        candidates = [entry.path for entry in reversed(entries)]
    for candidate in candidates:
        try:
            manifest.verify(candidate)
        except manifest.DamagedCheckpointError as error:
            logging.warning("Skipping a damaged checkpoint: %s", error)
        else:
            return str(candidate / _VARIABLES)
    raise UserError(
        f"No intact checkpoint at {path}. Give a checkpoint directory (ckpt-...-step-...) or the "
        "logdir of a run."
    )


def _alive_elsewhere(pid: int) -> bool:
    """Whether another process has this id."""
    # In containers, every learner may have the same id.
    return pid != os.getpid() and os.path.exists(f"/proc/{pid}")
