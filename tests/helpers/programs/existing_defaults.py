"""The options of a program for the original that only imports modules, which bring its flags.

existing_defaults.py IMPORTS NAMES [flags]

IMPORTS are modules, or --flags that it defines itself, in this order, and NAMES flags, both
separated by commas. Prints the values of
the flags, and where those come from that differ from the library's defaults, as JSON.
"""

import importlib
import json
import sys

from absl import flags

from seed_rl.common.config import flag_origins, options


def main():
    imports, names = (argument.split(",") for argument in sys.argv[1:3])
    del sys.argv[1:3]
    for name in imports:
        if name.startswith("--"):
            flags.DEFINE_float(name[2:], None, "Mine.")
        else:
            importlib.import_module(f"seed_rl.{name}")
    flags.FLAGS(sys.argv)
    values = options.flag_dictionary()
    kept = {name: values[name] for name in names if name in values}
    print(json.dumps([kept, flag_origins.origins(kept)]))


if __name__ == "__main__":
    main()
