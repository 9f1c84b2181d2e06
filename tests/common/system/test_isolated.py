"""Programs that read logdirs, where others may have put modules."""

import sys
from pathlib import Path

import pytest

from seed_rl.common.system import isolated
from tests.helpers import run

COMMAND = Path(sys.executable).with_name("seed-rl")


@pytest.mark.parametrize(
    "command",
    [
        *([COMMAND, name] for name in ("play", "evaluate", "serve")),
        isolated.command("seed_rl.play"),
        [sys.executable, "-m", "seed_rl.play"],
    ],
)
def test_nothing_is_imported_from_the_working_directory(command, tmp_path):
    """Guards users inside an unpacked logdir, from the first import on."""
    for module in ("argparse", "gymnasium", "json", "numpy", "rich", "tempfile"):
        (tmp_path / f"{module}.py").write_text("raise SystemExit('the trap was run')")
    done = run(*command, ".", cwd=tmp_path, code=2)
    assert done.stderr.startswith("error: There is no run in .")
