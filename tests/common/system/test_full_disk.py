"""What a learner's parts do on a disk that is really full."""

import subprocess
import sys

from tests.helpers import full_disk

PROGRAM = """
import pathlib, sys, time
import tensorflow as tf
from seed_rl.common.checkpoints import checkpoints
from seed_rl.common.system import files
from seed_rl.common.errors import UserError
from seed_rl.common.monitoring.metrics import SummaryWriter

folder = pathlib.Path(sys.argv[1])
variable = tf.Variable(tf.ones([20000]))
manager = checkpoints.CheckpointManager(folder / "checkpoints", {"variable": variable})
assert manager.save(1) is not None and manager.problem is None
filling = folder / "filling"
try:
    with open(filling, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
except OSError as error:
    assert files.is_no_room(error)
assert manager.save(2) is None
assert manager.problem == f"no space left in {folder / 'checkpoints'}", manager.problem
try:
    checkpoints.CheckpointManager(folder / "checkpoints", {"variable": variable})
except UserError as error:
    assert "No space left" in str(error) and "make room" in str(error)
else:
    raise AssertionError("a run may begin that can save nothing")
summaries = SummaryWriter(folder / "events")
summaries.write(1, {"loss": 1.0})

deadline = time.monotonic() + 60
while not summaries._warned:
    assert time.monotonic() < deadline
    time.sleep(0.05)
filling.unlink()
assert manager.save(3) is not None and manager.problem is None
summaries.write(2, {"loss": 2.0})
summaries.close()
assert [path for path in (folder / "events").iterdir() if path.stat().st_size > 0]
print("all is well")
"""


def test_saving_and_summaries_without_room(tmp_path):
    """Guards the reason that people are told, and that everything works when there is room."""
    (tmp_path / "run").mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    result = subprocess.run(
        full_disk.command(tmp_path / "run", sys.executable, program, tmp_path / "run", full=False),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.stdout == "all is well\n", result.stderr
    assert "Cannot write for TensorBoard" in result.stderr
