"""Adds the files of the repository's root to the site of the documentation (see mkdocs.yml)."""

import pathlib

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
FILES = ("LICENSE", "CITATION.cff")


def on_files(files, config):
    for source, page in PAGES.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        for name, target in PAGES.items():
            text = text.replace(f"]({name}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    for name in FILES:
        files.append(File.generated(config, name, content=(ROOT / name).read_text()))
    return files
