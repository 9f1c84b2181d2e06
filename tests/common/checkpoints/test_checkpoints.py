"""Checkpoints: exact resumption, and survival of kills and damage."""

import errno
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from seed_rl.common.checkpoints import checkpoints, manifest
from seed_rl.common.checkpoints.checkpoints import CheckpointManager
from seed_rl.common.errors import UserError
from seed_rl.common.run_files import checkpoint_list
from tests.helpers import PROGRAMS

VICTIM = PROGRAMS / "checkpoint_victim.py"


class Agent(tf.Module):
    """Keras layers alone, in a list and nested, beside a plain variable: all must be saved."""

    def __init__(self, units=4):
        super().__init__()
        self._core = tf.keras.layers.LSTMCell(units)
        self._heads = [tf.keras.layers.Dense(units), tf.keras.layers.Dense(1)]
        self._trunk = tf.keras.Sequential([tf.keras.layers.Dense(units, "relu")])
        self.scale = tf.Variable(1.0)
        self(tf.zeros([1, 3]))

    def __call__(self, inputs):
        hidden = self._trunk(inputs)
        zeros = tf.zeros([tf.shape(inputs)[0], self._core.units])
        hidden, _ = self._core(hidden, [zeros, zeros])
        for head in self._heads:
            hidden = head(hidden)
        return hidden * self.scale

    def weights(self):
        layers = [self._core, self._trunk, *self._heads]
        return [v for layer in layers for v in layer.trainable_variables]


class Run:
    """A little training run whose every bit is determined by what a checkpoint holds."""

    def __init__(self, directory, seed, optimizer="rmsprop", **kwargs):
        tf.keras.utils.set_random_seed(seed)
        self.agent = Agent()
        self.optimizer = {
            "rmsprop": lambda: tf.keras.optimizers.RMSprop(
                tf.keras.optimizers.schedules.PolynomialDecay(1e-2, 30), momentum=0.9, centered=True
            ),
            "adam": lambda: tf.keras.optimizers.Adam(1e-2),
        }[optimizer]()
        self.optimizer.build(self.agent.weights())
        self.frames = tf.Variable(0, dtype=tf.int64)
        self.entropy_cost = tf.Variable(0.5)
        self.trackables = {
            "agent": self.agent,
            "optimizer": self.optimizer,
            "frames": self.frames,
            "entropy_cost": self.entropy_cost,
        }
        self.manager = CheckpointManager(directory, self.trackables, **kwargs)

    def train(self, steps):
        for _ in range(steps):
            step = int(self.frames.numpy())
            inputs = tf.random.stateless_normal([8, 3], [step, 1])
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((self.agent(inputs) - 1.0) ** 2)
            gradients = tape.gradient(loss, self.agent.weights())
            self.optimizer.apply_gradients(zip(gradients, self.agent.weights(), strict=True))
            self.frames.assign_add(1)
            self.entropy_cost.assign(self.entropy_cost * 0.9)

    def state(self):
        variables = [*self.agent.weights(), self.agent.scale, *self.optimizer.variables]
        variables += [self.frames, self.entropy_cost]
        return [variable.numpy() for variable in variables]


def assert_same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


def steps_of(directory):
    return [entry.step for entry in checkpoint_list.list_checkpoints(directory)]


@pytest.mark.parametrize("optimizer", ["rmsprop", "adam"])
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path, optimizer):
    # Guards that slots, iterations (hence the schedule), counters and weights are all restored.
    straight = Run(tmp_path / "a", seed=1, optimizer=optimizer)
    straight.train(12)

    first = Run(tmp_path / "b", seed=1, optimizer=optimizer)
    first.train(7)
    assert first.manager.save(7) is not None
    second = Run(tmp_path / "b", seed=2, optimizer=optimizer)
    assert second.manager.restore_latest() == 7
    assert_same(second.state(), first.state())
    second.train(5)
    assert_same(second.state(), straight.state())


def test_without_checkpoints_there_is_nothing_to_restore(tmp_path):
    run = Run(tmp_path / "not" / "yet", seed=1)
    before = run.state()
    assert run.manager.restore_latest() is None
    assert_same(run.state(), before)


def test_the_newest_are_kept(tmp_path):
    run = Run(tmp_path, 1, keep=2)
    for step in range(4):
        run.manager.save(step)
    assert steps_of(tmp_path) == [2, 3]
    assert sorted(p.name for p in tmp_path.iterdir() if not p.name.startswith("ckpt-")) == []


def test_config_and_metadata_lie_beside_the_variables(tmp_path):
    run = Run(tmp_path, 1, config={"batch_size": 32, "game": "Pong"})
    path = run.manager.save(5)
    assert json.loads((path / "config.json").read_text()) == {"batch_size": 32, "game": "Pong"}
    assert json.loads((path / "metadata.json").read_text())["step"] == 5


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("truncate", " bytes, not "),
        ("flip", "has a wrong checksum"),
        ("remove", "No such file"),
        ("manifest", "has no readable manifest"),
        ("disk", "Input/output error"),
    ],
)
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path, caplog, monkeypatch, damage, told
):
    run = Run(tmp_path, 1)
    run.manager.save(1)
    saved = run.state()
    run.train(1)
    newest = run.manager.save(2)
    data = next(newest.glob("variables.data-*"))
    if damage == "truncate":
        os.truncate(data, data.stat().st_size - 7)
    elif damage == "flip":
        content = bytearray(data.read_bytes())
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    elif damage == "remove":
        data.unlink()
    elif damage == "disk":
        original = manifest._sha256

        def read(path):
            if path == data:
                raise OSError(errno.EIO, "Input/output error")
            return original(path)

        monkeypatch.setattr(manifest, "_sha256", read)
    else:
        os.truncate(newest / "MANIFEST.json", 20)

    again = Run(tmp_path, 2)
    assert again.manager.restore_latest() == 1
    assert_same(again.state(), saved)
    assert "Skipping a damaged checkpoint" in caplog.text and told in caplog.text
    # It is out of the way of the next ones, but not deleted.
    assert (tmp_path / (newest.name + ".damaged")).is_dir()
    again.manager.save(2)
    assert steps_of(tmp_path) == [1, 2]
    assert Run(tmp_path, 3).manager.restore_latest() == 2


@pytest.mark.parametrize(
    ("place", "error"),
    [
        ("pathlib.Path.read_text", PermissionError(errno.EACCES, "")),
        ("seed_rl.common.checkpoints.manifest._sha256", OSError(errno.ESTALE, "")),
        ("tensorflow.train.load_checkpoint", tf.errors.OpError(None, None, "Permission denied", 2)),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(tmp_path, monkeypatch, place, error):
    """Guards the newest one, which may be of another user or on a network disk."""
    run = Run(tmp_path, 1)
    run.manager.save(1)
    newest = run.manager.save(2)

    def fail(*_):
        raise error

    monkeypatch.setattr(place, fail)
    for read in (run.manager.restore_latest, lambda: checkpoints.load_weights(tmp_path, run.agent)):
        with pytest.raises(UserError, match=f"Cannot read {newest}/.*: (Permission|Stale)"):
            read()
    assert steps_of(tmp_path) == [1, 2]


def test_a_run_never_starts_over_silently_when_all_checkpoints_are_damaged(tmp_path):
    path = Run(tmp_path, 1).manager.save(1)
    (path / "MANIFEST.json").unlink()
    for _ in range(2):  # The first attempt must not make the second one start from nothing.
        with pytest.raises(UserError, match="--restart=fresh"):
            Run(tmp_path, 1).manager.restore_latest()


def test_leftovers_of_a_dead_learner_are_removed_and_of_a_live_one_kept(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    leftover = tmp_path / f".saving-{dead.pid}-ckpt-000001-step-000000000001"
    leftover.mkdir()
    (leftover / "variables.data-00000-of-00001").write_bytes(b"half")
    live = tmp_path / f".saving-{os.getppid()}-ckpt-000001-step-000000000001"
    live.mkdir()
    probe = tmp_path / f".saving-{dead.pid}-probe"
    probe.touch()
    run = Run(tmp_path, 1)
    assert not leftover.exists() and not probe.exists()
    assert live.exists()
    assert run.manager.restore_latest() is None


def test_an_unwritable_directory_is_told_with_the_mend(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="--logdir"):
        Run(tmp_path / "file" / "checkpoints", 1)

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints.files, "open_no_link", fail)
    with pytest.raises(UserError, match="No space left on device.*free space"):
        Run(tmp_path / "full", 1)


def test_an_optimizer_without_slots_is_a_bug_of_ours(tmp_path):
    with pytest.raises(ValueError, match="Build the optimizer 'adam'"):
        CheckpointManager(tmp_path, {"adam": tf.keras.optimizers.Adam()})


class Notes:
    """Extra files, which can be made to fail."""

    def __init__(self, text=""):
        self.text = text
        self.error = None

    def save(self, directory):
        (directory / "notes.txt").write_text(self.text)
        if self.error:
            raise self.error

    def restore(self, directory):
        path = directory / "notes.txt"
        self.text = path.read_text() if path.exists() else "nothing"


def test_extra_files_that_cannot_be_written_cost_nothing_else(tmp_path, caplog):
    """Guards the weights from a replay that has become larger than the disk."""
    notes = Notes("first")
    run = Run(tmp_path, 1, extra={"replay": notes})
    run.manager.save(1)
    notes.text, notes.error = "second", OSError(28, "No space left on device")
    without = run.manager.save(2)
    assert "without its replay" in caplog.text and "No space left on device" in caplog.text
    assert not (without / "replay").exists()
    assert len(list(tmp_path.iterdir())) == 2

    restored = Notes()
    assert Run(tmp_path, 1, extra={"replay": restored}).manager.restore_latest() == 2
    assert restored.text == "nothing"
    notes.error = None
    run.manager.save(3)
    assert Run(tmp_path, 1, extra={"replay": restored}).manager.restore_latest() == 3
    assert restored.text == "second"


def test_weights_are_safe_before_extra_files_are_written(tmp_path):
    """Guards a stop whose grace ends while a large replay is being written."""

    class Slow(Notes):
        def save(self, directory):
            self.seen = steps_of(tmp_path)
            manifest.verify(checkpoint_list.list_checkpoints(tmp_path)[-1].path)

    slow = Slow()
    run = Run(tmp_path, 1, keep=1, extra={"replay": slow})
    run.manager.save(1)
    run.manager.save(2)
    assert slow.seen == [1, 2]  # And the older one is removed only when the newer one is complete.
    assert steps_of(tmp_path) == [2]


def test_a_checkpoint_is_on_the_disk_before_its_name_is(tmp_path, monkeypatch):
    """Guards a power cut: files are flushed, then the folder is renamed, then that is flushed."""
    run, events, fsync, rename = Run(tmp_path, 1), [], os.fsync, pathlib.Path.rename

    def flush(descriptor):
        events.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(pathlib.Path, "rename", lambda *a: (events.append("rename"), rename(*a)))
    path = run.manager.save(1)
    flushed = [pathlib.Path(event).name for event in events[: events.index("rename")]]
    assert {file.name for file in path.iterdir()} < set(flushed)
    assert flushed[-1].endswith(path.name) and events[-2:] == ["rename", str(tmp_path)]


def test_a_save_that_fails_once_is_tried_again(tmp_path, monkeypatch):
    """Guards the next try, and what is told and kept when all of them fail on a full disk."""
    errors = [OSError(5, "Input/output error")]
    write = checkpoints.run_record.write

    def flaky(*args):
        if errors:
            raise errors.pop()
        write(*args)

    run = Run(tmp_path, 1)
    monkeypatch.setattr(checkpoints.run_record, "write", flaky)
    assert run.manager.save(1) is not None
    assert not errors
    errors += [OSError(errno.ENOSPC, "No space left on device")] * 2
    assert run.manager.save(2) is None
    assert run.manager.problem == f"no space left in {tmp_path}"
    assert [path.name[-6:] for path in tmp_path.iterdir()] == ["000001"]
    assert run.manager.save(3) is not None and run.manager.problem is None
    assert steps_of(tmp_path) == [1, 3]


def test_init_checkpoint_takes_weights_and_nothing_else(tmp_path):
    source = Run(tmp_path / "checkpoints", 1)
    source.train(3)
    path = source.manager.save(3)
    best = shutil.copytree(path, tmp_path / "best")
    for given in (path, tmp_path / "checkpoints", tmp_path, path / "variables", best):
        target = Run(tmp_path / "other", 2)
        checkpoints.load_weights(given, target.agent)
        weights = [v.numpy() for v in target.agent.weights()]
        assert_same(weights, source.state()[: len(weights)])
        assert target.frames.numpy() == 0
        assert target.optimizer.iterations.numpy() == 0


def test_init_checkpoint_may_be_the_current_directory(tmp_path, monkeypatch):
    source = Run(tmp_path / "checkpoints", 1)
    path = source.manager.save(3)
    for directory, given in ((tmp_path, "."), (path, "."), (path, "../.."), (path, "variables")):
        monkeypatch.chdir(directory)
        checkpoints.load_weights(given, Agent())
    monkeypatch.chdir("/")
    with pytest.raises(UserError, match="No intact checkpoint at \\."):
        checkpoints.load_weights(".", Agent())


def test_init_checkpoint_errors_name_the_mend(tmp_path, caplog):
    run = Run(tmp_path / "checkpoints", 1, config={"units": 4, "activation": "tanh"})
    run.manager.save(3)
    options = {"units": 5, "activation": "tanh"}
    words = r"agent: --units was 4, is now 5 \(.*\)\. .* must be those of the run that saved them"
    with pytest.raises(UserError, match=words):
        checkpoints.load_weights(tmp_path, Agent(units=5), options)
    options = {"units": 4, "activation": "relu"}
    checkpoints.load_weights(tmp_path, run.agent, options, {"activation"})
    assert "from another network: --activation was tanh, is now relu." in caplog.text
    with pytest.raises(UserError, match="No intact checkpoint"):
        checkpoints.load_weights(tmp_path / "nothing", run.agent)


@pytest.mark.slow
def test_kill_9_at_any_moment_leaves_a_whole_latest_checkpoint(tmp_path):
    # The children do nothing but save, so nearly every kill hits one that is being written.
    generator = random.Random(7)
    hits = 0
    step = 0
    victim = subprocess.Popen(
        [sys.executable, VICTIM, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert victim.stdout.readline() == "ready\n"
        for _ in range(20):
            victim.stdin.write(f"{step}\n")
            victim.stdin.flush()
            child = None
            acknowledged = step
            # Let it save once or more, then strike at a random moment of a later save.
            for line in victim.stdout:
                word, _, number = line.strip().partition(" ")
                if word == "child":
                    child = int(number)
                elif word == "saved":
                    acknowledged = int(number)
                if child and acknowledged > step:
                    time.sleep(generator.uniform(0, 0.06))
                    os.kill(child, signal.SIGKILL)
                    child = None
                if word == "dead":
                    break
            hits += any(p.name.startswith(".saving-") for p in tmp_path.iterdir())
            entries = checkpoint_list.list_checkpoints(tmp_path)
            for entry in entries:
                manifest.verify(entry.path)
            step = entries[-1].step
            assert step >= acknowledged  # A save that has returned is never lost.
            reader = tf.train.load_checkpoint(str(entries[-1].path / "variables"))
            for name in reader.get_variable_to_shape_map():
                if "VARIABLE_VALUE" in name:
                    assert np.all(reader.get_tensor(name) == step), name
    finally:
        victim.kill()
        victim.wait()
    assert hits > 0  # Otherwise no kill came while saving, and nothing was tested.


@pytest.mark.parametrize("name", ["/dev/zero", "../../returns.csv"])
def test_a_manifest_names_only_its_own_files(tmp_path, name):
    """Guards against one that came with a logdir: /dev/zero would be read forever."""
    path = Run(tmp_path, 1).manager.save(1)
    inventory = json.loads((path / "MANIFEST.json").read_text())
    inventory["files"][name] = {"bytes": 0, "sha256": ""}
    (path / "MANIFEST.json").write_text(json.dumps(inventory))
    with pytest.raises(manifest.DamagedCheckpointError, match=f"names {name}, which is elsewhere"):
        manifest.verify(path)
