"""Runs a module where only some packages are installed: only_packages_of.py FILES MODULE [FLAG ...]

FILES: requirements as docker/requirements has them, separated by commas.
"""

import importlib.abc
import importlib.metadata
import pathlib
import re
import runpy
import sys

files, module, *flags = sys.argv[1:]
lines = [line for file in files.split(",") for line in pathlib.Path(file).read_text().splitlines()]
installed = {line.partition("==")[0] for line in lines if "==" in line} | {"seed-rl"}
owners = importlib.metadata.packages_distributions()


class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        found = {re.sub("[-_.]+", "-", o).lower() for o in owners.get(name.partition(".")[0], [])}
        if found and not found & installed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
sys.argv = [module, *flags]
runpy.run_module(module, run_name="__main__", alter_sys=True)
