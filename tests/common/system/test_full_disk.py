"""What a learner's parts do on a disk that is really full."""

import subprocess
import sys

from tests.helpers import full_disk
from tests.helpers.waiting import PATIENCE_S


def test_saving_and_summaries_without_room(tmp_path, repository):
    """Guards the reported reason, the last good checkpoint, and that everything works once there is
    space.
    """
    (tmp_path / "run").mkdir()
    program = [sys.executable, "-m", "tests.helpers.programs.full_disk_program", tmp_path / "run"]
    result = subprocess.run(
        full_disk.command(tmp_path / "run", *program, full=False),
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert result.stdout == "all is well\n", result.stderr
    assert "The run continues; older ones are intact" in result.stderr
    assert "Cannot write for TensorBoard" in result.stderr
