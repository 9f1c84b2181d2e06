"""The code that pages quote is the code, and the notebook among them runs."""

import re

import pytest

# A block that begins with a comment naming the file it comes from.
BLOCK = re.compile(r"^```python\n# (seed_rl/\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_LINES = 60


def test_quotes_are_in_their_files(repository):
    """Guards each quoted line, in order; `...` stands for lines left out."""
    page = (repository / "docs" / "architecture.md").read_text()
    blocks = BLOCK.findall(page)
    assert len(blocks) >= 6
    for name, quote in blocks:
        lines = [line.strip() for line in (repository / name).read_text().splitlines()]
        position = 0
        for quoted in quote.splitlines():
            if quoted.strip() in ("...", ""):
                continue
            assert quoted.strip() in lines[position:], f"{name}: {quoted}"
            position = lines.index(quoted.strip(), position) + 1


def test_each_page_of_code_is_a_page(repository):
    page = (repository / "docs" / "architecture.md").read_text()
    for section in ("## One inference, in code", "## One V-trace training step, in code"):
        text = page.split(section)[1].split("\n## ")[0]
        quoted = sum(len(quote.splitlines()) for _, quote in BLOCK.findall(text))
        assert 0 < quoted <= MOST_LINES


@pytest.mark.nightly
def test_the_notebook_of_the_library_page_runs(repository, tmp_path, forks):
    """Guards every block of the page, one after the other as in a notebook."""
    page = (repository / "docs" / "library.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    notebook = tmp_path / "notebook.py"
    notebook.write_text("\n".join(blocks))
    result = forks.run(notebook, cwd=tmp_path, code=0)
    assert "ckpt-" in result.stdout
    assert {run.name for run in (tmp_path / "runs").iterdir()} >= {"notebook", "stopped"}
