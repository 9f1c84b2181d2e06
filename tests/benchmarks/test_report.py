"""What benchmarks share: rounds, ratios, tables and the JSON file."""

import json
import math

from benchmarks import report


def test_rounds_are_interleaved():
    """Contestants run in turns, every other round backwards, so that drift hits all alike."""
    order = []
    contestants = {name: lambda name=name: order.append(name) or len(order) for name in "abc"}
    results = report.interleave(contestants, 3)
    assert "".join(order) == "abccbaabc"
    assert results == {"a": [1, 6, 7], "b": [2, 5, 8], "c": [3, 4, 9]}


def test_ratios_are_taken_round_by_round():
    """A slow minute of the machine hits both sides of a ratio."""
    assert report.median_ratio([10, 1, 30], [5, 0.5, 10]) == 2
    assert math.isnan(report.median_ratio([1], [0]))


def test_tables_are_markdown_of_any_width(capsys):
    """Tables are complete in narrow terminals and can be pasted."""
    report.print_table("Title", ["name", "c" * 150, "x"], [["a", 12345, 0.123456], ["b", 7, 456.7]])
    title, header, rule, first, second = filter(None, capsys.readouterr().out.splitlines())
    assert title == "Title"
    assert "c" * 150 in header
    assert set(rule) == {"|", "-"}
    assert [cell.strip() for cell in first.split("|")[1:-1]] == ["a", "12,345", "0.123"]
    assert [cell.strip() for cell in second.split("|")[1:-1]] == ["b", "7", "457"]


def test_results_are_written_with_the_machine(tmp_path, capsys):
    """--json has the figures and their conditions."""
    options = report.parser("Test", seconds=0.5).parse_args([f"--json={tmp_path}/r.json"])
    assert (options.seconds, options.rounds) == (0.5, 3)
    report.write_json(options.json, {"op_over_grpcio": 0.9})
    written = json.loads((tmp_path / "r.json").read_text())
    assert written["op_over_grpcio"] == 0.9
    assert {"cpu", "cores", "seed_rl"} <= written["machine"].keys()
    report.write_json(None, {})
    assert len(list(tmp_path.iterdir())) == 1
