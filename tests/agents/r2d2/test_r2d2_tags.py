"""docs/monitoring.md documents every curve of R2D2."""

import pathlib

from seed_rl.agents.r2d2.config import R2D2Config
from seed_rl.testing.envs import LifeStepEnv
from tests.helpers.in_process import Run

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "monitoring.md"


def test_every_tag_is_documented():
    """Guards against an undocumented curve, and documentation of one that is gone."""
    with Run(lambda: LifeStepEnv(5), R2D2Config(burn_in=2, n_steps=2)) as run:
        run.start()
        run.act()
        metrics, _ = run.train()
        run.algorithm.logs()
        run.train()
        tags = {f"train/{name}" for name in metrics} | set(run.algorithm.logs())
    # What the reporter calls otherwise is in the table of every agent.
    tags -= {"train/loss", "train/skipped_steps"}
    page = PAGE.read_text()
    assert not [tag for tag in tags if f"`{tag}`" not in page]
    table = page.partition("### R2D2")[2].partition("\n##")[0]
    named = {cell.strip("`") for line in table.splitlines() for cell in line.split() if "`" in cell}
    named = {name.rstrip("`,") for name in named if name.startswith(("train/", "replay/"))}
    assert named - tags <= {"replay/priorities"}  # Comes with the first feedback.
