"""Hooks of the documentation's site, see mkdocs.yml."""

import pathlib

from markdown.extensions import Extension
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
FILES = ("LICENSE", "CITATION.cff", "examples/quickstart.ipynb")


class NoHTML(Extension):
    """Shows <float32> in docstrings, which would otherwise pass for an HTML tag and vanish."""

    def extendMarkdown(self, md):
        md.preprocessors.deregister("html_block")
        md.inlinePatterns.deregister("html")


def on_config(config):
    config.markdown_extensions.append(NoHTML())
    return config


def on_files(files, config):
    """Adds the pages of the repository's root."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        for name, target in PAGES.items():
            text = text.replace(f"]({name}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    for name in FILES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files
