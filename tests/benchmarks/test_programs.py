"""The benchmark programs, run very briefly: they work, and --json has its keys."""

import json
import sys

import pytest

from tests.helpers import run

pytestmark = pytest.mark.slow


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("program", "options", "keys"),
    [
        (
            "calls",
            ["--rounds=1", "--seconds=0.5"],
            ["tls_over_plain", "op_over_grpcio", "numpy_over_grpcio"],
        ),
        ("actor", ["--rounds=1", "--seconds=0.5"], ["rss_mb", "first_step_s"]),
        (
            "training",
            ["--actors=1", "--seconds=2", "--warmup=0", "--part_seconds=0.5"],
            ["efficiency", "frames_per_s", "ideal_frames_per_s"],
        ),
    ],
)
def test_results_have_the_promised_keys(repository, tmp_path, program, options, keys):
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", f"benchmarks.{program}", *options, f"--json={file}"]
    run(*command, code=0, cwd=repository, timeout=1500)
    results = json.loads(file.read_text())
    assert all(results[key] > 0 for key in keys)
    assert results["machine"]["cores"] >= 1


@pytest.mark.nightly
def test_the_check_of_a_gpu_on_a_cpu(repository):
    """Every part of the report, in its short form."""
    command = [sys.executable, "-m", "benchmarks.accelerator", "--quick", "--expect"]
    result = run(*command, "cpu", code=0, cwd=repository, timeout=1500)
    titles = ("Each agent trains", "Alone, ms of a core", "The whole system", "random frames")
    assert all(title in result.stdout for title in titles)
