"""Hooks of the documentation's site, see mkdocs.yml."""

import pathlib
import re

from markdown.extensions import Extension
from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE)
INLINE_CODE = re.compile(r"(?<!</span>)<code>([^<]+)</code>")
WORD = re.compile(r"\S{2,50}(?=\s|$)")
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


def on_page_markdown(markdown, **_):
    """Leaves out comments, which programs look for, and `NoHTML` would show."""
    return COMMENT.sub("", markdown)


def on_page_content(html, **_):
    """Keeps the words of inline code in one piece: browsers break lines after hyphens of flags."""

    def kept_whole(code):
        words = WORD.sub(r'<span class="whole">\g<0></span>', code[1])
        return f"<code>{words}</code>"

    return INLINE_CODE.sub(kept_whole, html)
