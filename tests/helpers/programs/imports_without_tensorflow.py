"""Imports modules one by one; fails with the first that imports TensorFlow.

imports_without_tensorflow.py FILE [FILE ...]     (paths below the working directory)
"""

import importlib
import pathlib
import sys


def main():
    sys.path.insert(0, ".")
    for name in sys.argv[1:]:
        parts = pathlib.Path(name).with_suffix("").parts
        module = ".".join(part for part in parts if part != "__init__")
        importlib.import_module(module)
        if "tensorflow" in sys.modules:
            sys.exit(f"{module} imports TensorFlow")


if __name__ == "__main__":
    main()
