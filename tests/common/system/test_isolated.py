"""Programs that read logdirs, where others may have put modules."""

import sys
from pathlib import Path

import pytest

from tests.helpers import run

COMMAND = Path(sys.executable).with_name("seed-rl")


@pytest.mark.parametrize(
    "command",
    [
        *([COMMAND, *words.split()] for words in ("play .", "evaluate .", "serve .", "stop .")),
        *([COMMAND, *words.split()] for words in ("plot .", "study aggregate .", "study x.json")),
        [sys.executable, "-m", "seed_rl.play", "."],
    ],
)
def test_nothing_is_imported_from_the_working_directory(command, tmp_path):
    """Guards users inside an unpacked logdir, from the first import on."""
    (tmp_path / "seed_rl").mkdir()
    modules = "argparse", "gymnasium", "json", "numpy", "rich", "tempfile", "seed_rl/__init__"
    for module in modules[:-1] if "-m" in command else modules:
        (tmp_path / f"{module}.py").write_text("raise SystemExit('the trap was run')")
    done = run(*command, cwd=tmp_path, code=2)
    assert done.stderr.startswith("error: ") and "trap" not in done.stdout + done.stderr


def test_nor_by_the_filter_of_messages(tmp_path):
    """Guards the process that TensorFlow's messages pass through."""
    (tmp_path / "seed_rl").mkdir()
    (tmp_path / "seed_rl/__init__.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w')")
    code = "from seed_rl.common.system import chatter\nimport os\nos.chdir({!r})\n"
    code += "with chatter.left_out(): os.write(2, b'said\\n')"
    done = run(sys.executable, "-c", code.format(str(tmp_path)), code=0)
    assert done.stderr == "said\n" and not (tmp_path / "mark").exists()
